// One row there and back by the generated types and openapi-fetch: `roundtrip URL`.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema";

const client = createClient<paths>({ baseUrl: process.argv[2] });
const value = Uint8Array.from({ length: 256 }, (_, at) => at);
const key = { ns: "typescript", pk: "a/b", sk: "c d" };
// Bytes go as they are. The generator makes them a string in types.
const raw = { bodySerializer: (body: unknown) => body as BodyInit, headers: { "Content-Type": "application/octet-stream" } };
const bytes = (body: Uint8Array) => body as unknown as string;

async function main() {
  const ns = { path: { ns: key.ns } };
  const created = await client.PUT("/admin/v1/namespaces/{ns}", { params: ns, body: { default_ttl: "30d" } });
  assert.equal(created.data?.name, key.ns);
  const row = "/v1/ns/{ns}/kv/{pk}/{sk}";
  const put = await client.PUT(row, { params: { path: key, header: { "Umbo-TTL": "5m" } }, body: bytes(value), ...raw });
  assert.equal(put.response.status, 201);
  const got = await client.GET(row, { params: { path: key }, parseAs: "arrayBuffer" });
  assert.deepEqual(new Uint8Array(got.data!), value);
  const refused = await client.PUT(row, {
    params: { path: key, header: { "If-None-Match": "*" } }, body: bytes(value), ...raw,
  });
  assert.equal(refused.error?.type, "/v1/errors/precondition-failed");
  assert.equal(refused.error?.retry.safe, false);
  const line = '{"pk":"a/b","sk":"d","v":"text"}\n';
  const written = await client.POST("/v1/ns/{ns}/batch/write", {
    params: ns, body: line, parseAs: "text", bodySerializer: (body) => body, headers: { "Content-Type": "application/x-ndjson" },
  });
  assert.equal(written.response.status, 200);
  const page = await client.GET("/v1/ns/{ns}/range/{pk}", {
    params: { path: { ns: key.ns, pk: key.pk }, query: { limit: 5 } }, headers: { Accept: "application/json" },
  });
  assert(Array.isArray(page.data));
  const [first, second, last] = page.data;
  assert.deepEqual([first.sk, second.v, last.end?.rows, last.end?.more], ["c d", "text", 2, false]);
  const price = await client.POST("/v1/ns/{ns}/explain", { params: ns, body: { operation: "get", pk: "a" } });
  assert(price.data!.estimate_ru > 0);
  assert.equal((await client.DELETE(row, { params: { path: key } })).response.status, 204);
  const absent = await client.GET(row, { params: { path: key } });
  assert.equal(absent.error?.status, 404);
  console.log("round trip done");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
