import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.*;

/** The clients of Java, as people write them: with a name it speaks the lines of `storefront -trouble`;
 * alone, it prints each name, with the version. Java's library has no JSON: regular expressions do. */
public class Clients {
	interface Client { String place(String key, String order) throws Exception; }

	static final URI url =
		URI.create(Objects.requireNonNullElse(System.getenv("STOREFRONT_URL"), "http://x") + "/v1/orders");
	static final Pattern ID = Pattern.compile("\"id\"\\s*:\\s*\"([^\"]+)\"");

	static HttpRequest.Builder request(String key, String order) {
		return HttpRequest.newBuilder(url).header("Content-Type", "application/json")
			.header("Idempotency-Key", key).POST(HttpRequest.BodyPublishers.ofString(order));
	}

	static String id(String body) {
		Matcher m = ID.matcher(body);
		return m.find() ? m.group(1) : "";
	}

	static final HttpClient http = HttpClient.newHttpClient();

	static String once(String key, String order) throws Exception {
		var answer = http.send(request(key, order).timeout(Duration.ofSeconds(40)).build(),
			HttpResponse.BodyHandlers.ofString());
		if (answer.statusCode() >= 400) throw new IOException("status " + answer.statusCode());
		return id(answer.body());
	}

	static String loop(String key, String order) throws Exception {
		for (int n = 0; ; n++) {
			try {
				return once(key, order);
			} catch (IOException e) {
				if (n == 5) throw e;
				Thread.sleep(250L << n);
			}
		}
	}

	static String urlConnection(String key, String order) throws Exception {
		var c = (HttpURLConnection) url.toURL().openConnection();
		c.setConnectTimeout(40_000);
		c.setReadTimeout(40_000);
		c.setDoOutput(true);
		c.setRequestProperty("Content-Type", "application/json");
		c.setRequestProperty("Idempotency-Key", key);
		c.getOutputStream().write(order.getBytes(StandardCharsets.UTF_8));
		try (InputStream in = c.getInputStream()) { // throws from 400
			return id(new String(in.readAllBytes(), StandardCharsets.UTF_8));
		}
	}

	static String careful(String key, String order) throws Exception {
		long end = System.nanoTime() + Duration.ofHours(12).toNanos();
		for (long pause = 250; System.nanoTime() < end; pause = Math.min(2 * pause, 60_000)) {
			int status = 0;
			String wait = "", body = "";
			var call = http.sendAsync(request(key, order).build(), HttpResponse.BodyHandlers.ofString());
			try {
				var answer = call.get(40, TimeUnit.SECONDS);
				status = answer.statusCode();
				wait = answer.headers().firstValue("Retry-After").orElse("");
				body = answer.body().strip();
			} catch (ExecutionException | TimeoutException e) {
				call.cancel(true);
			}
			if (status == 201 && body.startsWith("{") && body.endsWith("}") && !id(body).isEmpty())
				return id(body);
			if (!List.of(0, 201, 408, 409, 429).contains(status) && (status < 500 || status == 501))
				throw new IOException("status " + status + ": " + body);
			long seconds = !wait.matches("[0-9]+") ? 0 :
				wait.length() > 4 ? 3600 : Math.min(Long.parseLong(wait), 3600);
			Thread.sleep(seconds * 1000 + ThreadLocalRandom.current().nextLong(pause));
		}
		throw new IOException("no answer");
	}

	public static void main(String[] args) throws Exception {
		var clients = new LinkedHashMap<String, Client>();
		clients.put("HttpClient, one try", Clients::once);
		clients.put("HttpClient, a loop", Clients::loop);
		clients.put("HttpURLConnection, one try", Clients::urlConnection);
		clients.put("HttpClient, loop of wire.md", Clients::careful);
		if (args.length == 0) {
			for (String name : clients.keySet())
				System.out.println(name + "\tJava " + System.getProperty("java.version"));
			return;
		}
		var client = clients.get(args[0]);
		var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
		for (String line; (line = in.readLine()) != null; ) {
			String member;
			try {
				if (!line.contains("\"item\"")) throw new IOException("orders only");
				member = "\"id\":\"" + client.place(UUID.randomUUID().toString(), line) + "\"}";
			} catch (Exception e) {
				member = "\"error\":\"" + e.toString().replaceAll("[^ -!#-\\[\\]-~]", "'") + "\"}";
			}
			out.println(line.substring(0, line.length() - 1) + "," + member);
		}
		System.exit(0);
	}
}
