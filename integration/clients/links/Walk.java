import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.regex.Pattern;

// Prints the pages of lists, each on a line.
class Walk {
    public static void main(String[] firstPages) throws Exception {
        var client = HttpClient.newHttpClient();
        var next = Pattern.compile("<([^>]*)>; rel=\"next\"");
        for (var first : firstPages) {
            for (var page = URI.create(first); page != null; ) {
                var answer = client.send(HttpRequest.newBuilder(page).build(), BodyHandlers.ofString());
                System.out.println(answer.body());
                var link = next.matcher(String.join(", ", answer.headers().allValues("Link")));
                page = link.find() ? page.resolve(link.group(1)) : null;
            }
        }
    }
}
