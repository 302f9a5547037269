vcl 4.1;

#import directors;

#probe ready {
    #.url = "/readyz";
    #.interval = 1s;
    #.timeout = 3s;
    #.window = 3;
    #.threshold = 2;
    #.initial = 2;
#}

backend shop {
    .host = "127.0.0.1";
    .port = "8080";
    .first_byte_timeout = 65s;
    #.probe = ready;
}

#backend second {
    #.host = "127.0.0.1";
    #.port = "8081";
    #.first_byte_timeout = 65s;
    #.probe = ready;
#}

#sub vcl_init {
    #new replicas = directors.round_robin();
    #replicas.add_backend(shop);
    #replicas.add_backend(second);
#}

sub vcl_recv {
    if (req.url ~ "^/metrics(\?|$)") {
        return (synth(404));
    }
    #set req.backend_hint = replicas.backend();
}

sub vcl_backend_response {
    set beresp.grace = 0s;
    set beresp.keep = 1h;
}
