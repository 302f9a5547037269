vcl 4.1;

backend shop {
    .host = "127.0.0.1";
    .port = "8080";
    .first_byte_timeout = 65s;
}

sub vcl_recv {
    if (req.url ~ "^/metrics(\?|$)") {
        return (synth(404));
    }
}

sub vcl_backend_response {
    set beresp.grace = 0s;
    set beresp.keep = 1h;
}
