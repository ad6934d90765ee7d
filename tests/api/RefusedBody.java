import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Sends a body of so many bytes, and prints status, media type and text of the answer as JSON. */
class RefusedBody {
    public static void main(String[] arguments) throws Exception {
        var body = HttpRequest.BodyPublishers.ofByteArray(new byte[Integer.parseInt(arguments[2])]);
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).method(arguments[1], body).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        var type = answer.headers().firstValue("content-type").orElse("");
        System.out.printf("[%d, %s, %s]%n", answer.statusCode(), quoted(type), quoted(answer.body()));
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
