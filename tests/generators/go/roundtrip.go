// One row there and back by the generated client: `roundtrip URL`.
package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"umbo.test/generators/umbo"
)

func check[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

func expect(holds bool, about ...any) {
	if !holds {
		panic(fmt.Sprint(about...))
	}
}

// A list instead of lines.
func asArray(_ context.Context, request *http.Request) error {
	request.Header.Set("Accept", "application/json")
	return nil
}

func main() {
	ctx, bytesType := context.Background(), "application/octet-stream"
	client := check(umbo.NewClientWithResponses(os.Args[1]))
	const ns, pk, sk = "go", "a/b", "c d"
	value := make([]byte, 256)
	for at := range value {
		value[at] = byte(at)
	}

	var ttl umbo.TimeToLive
	expect(ttl.FromTimeToLive1("30d") == nil)
	created := check(client.PutNamespaceWithResponse(ctx, ns, nil, umbo.NamespaceSpec{DefaultTtl: &ttl}))
	expect(created.JSON201 != nil && created.JSON201.Name == ns, created.HTTPResponse.Status)
	short := "5m"
	put := check(client.PutSortedWithBodyWithResponse(ctx, ns, pk, sk, &umbo.PutSortedParams{UmboTTL: &short}, bytesType, bytes.NewReader(value)))
	expect(put.StatusCode() == 201, put.HTTPResponse.Status)
	got := check(client.GetSortedWithResponse(ctx, ns, pk, sk, nil))
	expect(bytes.Equal(got.Body, value), got.HTTPResponse.Status)
	any := umbo.PutSortedParamsIfNoneMatch("*")
	refused := check(client.PutSortedWithBodyWithResponse(ctx, ns, pk, sk, &umbo.PutSortedParams{IfNoneMatch: &any}, bytesType, strings.NewReader("x")))
	problem := refused.ApplicationproblemJSON412
	expect(problem != nil && problem.Type == "/v1/errors/precondition-failed" && !problem.Retry.Safe, refused.HTTPResponse.Status)
	line := strings.NewReader(`{"pk":"a/b","sk":"d","v":"text"}`)
	written := check(client.BatchWriteWithBodyWithResponse(ctx, ns, nil, "application/x-ndjson", line))
	expect(written.StatusCode() == 200, written.HTTPResponse.Status)
	limit := 5
	page := check(client.RangeWithResponse(ctx, ns, pk, &umbo.RangeParams{Limit: &limit}, asArray))
	expect(page.JSON200 != nil && len(*page.JSON200) == 3, page.HTTPResponse.Status)
	lines := *page.JSON200
	expect(*lines[0].Sk == sk && *lines[1].V == "text" && lines[2].End.Rows == 2 && lines[2].End.Ru > 0, string(page.Body))
	price := check(client.ExplainWithResponse(ctx, ns, nil, umbo.ExplainBody{Operation: "get", Pk: &short}))
	expect(price.JSON200 != nil && price.JSON200.EstimateRu > 0, price.HTTPResponse.Status)
	deleted := check(client.DeleteSortedWithResponse(ctx, ns, pk, sk, nil))
	expect(deleted.StatusCode() == 204, deleted.HTTPResponse.Status)
	absent := check(client.GetSortedWithResponse(ctx, ns, pk, sk, nil))
	expect(absent.ApplicationproblemJSON404 != nil && absent.ApplicationproblemJSON404.Type == "/v1/errors/key-not-found", absent.HTTPResponse.Status)
	fmt.Println("round trip done")
}
