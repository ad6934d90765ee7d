import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.JSON;
import org.openapitools.client.api.CostApi;
import org.openapitools.client.api.ManyRowsApi;
import org.openapitools.client.api.NamespacesApi;
import org.openapitools.client.api.RowsApi;
import org.openapitools.client.model.ExplainBody;
import org.openapitools.client.model.NamespaceSpec;
import org.openapitools.client.model.Problem;
import org.openapitools.client.model.StreamLine;
import org.openapitools.client.model.TimeToLive;

/** One row there and back by the generated client: `Roundtrip URL`. */
public final class Roundtrip {
    private static final String NS = "java", PK = "a/b", SK = "c d";

    public static void main(String[] arguments) throws Exception {
        ApiClient client = new ApiClient().setBasePath(arguments[0]);
        RowsApi rows = new RowsApi(client);
        ManyRowsApi many = new ManyRowsApi(client);
        byte[] value = new byte[256];
        for (int at = 0; at < value.length; at++) value[at] = (byte) at;

        NamespaceSpec spec = new NamespaceSpec().defaultTtl(new TimeToLive("30d"));
        expect(new NamespacesApi(client).putNamespace(NS).namespaceSpec(spec).execute().getName().equals(NS));
        rows.putSorted(NS, PK, SK).umboTTL("5m").body(file(value)).execute();
        expect(Arrays.equals(Files.readAllBytes(rows.getSorted(NS, PK, SK).execute().toPath()), value));
        Problem refused = refusal(412, () -> rows.putSorted(NS, PK, SK).ifNoneMatch("*").body(file(value)).execute());
        expect(refused.getType().equals("/v1/errors/precondition-failed") && !refused.getRetry().getSafe());
        byte[] line = "{\"pk\":\"a/b\",\"sk\":\"d\",\"v\":\"text\"}\n".getBytes();
        expect(many.batchWrite(NS, file(line)).execute().contains("\"failed\":0"));
        List<StreamLine> page = many.range(NS, PK).limit(5).execute();
        expect(page.size() == 3 && page.get(0).getSk().equals(SK) && page.get(1).getV().equals("text"));
        expect(page.get(2).getEnd().getRows() == 2 && !page.get(2).getEnd().getMore());
        ExplainBody question = new ExplainBody().operation("get").pk("a");
        expect(new CostApi(client).explain(NS, question).execute().getEstimateRu().doubleValue() > 0);
        rows.deleteSorted(NS, PK, SK).execute();
        Problem absent = refusal(404, () -> rows.getSorted(NS, PK, SK).execute());
        expect(absent.getType().equals("/v1/errors/key-not-found"));
        System.out.println("round trip done");
    }

    private interface Call {
        void run() throws Exception;
    }

    private static Problem refusal(int status, Call call) throws Exception {
        try {
            call.run();
        } catch (ApiException refused) {
            expect(refused.getCode() == status);
            return JSON.deserialize(refused.getResponseBody(), Problem.class);
        }
        throw new AssertionError("not refused");
    }

    private static java.io.File file(byte[] bytes) throws Exception {
        Path path = Files.createTempFile("umbo", ".bin");
        Files.write(path, bytes);
        return path.toFile();
    }

    private static void expect(boolean holds) {
        if (!holds) throw new AssertionError();
    }
}
