// One session through the client that oapi-codegen makes. Prints what it saw as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

const session = "from-go"

func authorized(_ context.Context, request *http.Request) error {
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
	return nil
}

// answered returns the answer of status 200.
func answered[T any](answer *T, body []byte, err error) *T {
	if err != nil {
		log.Fatal(err)
	}
	if answer == nil {
		log.Fatalf("another answer: %s", body)
	}
	return answer
}

func pointer[T any](value T) *T { return &value }

func main() {
	ctx := context.Background()
	client, err := NewClientWithResponses(os.Getenv("API_URL"), WithRequestEditorFn(authorized))
	if err != nil {
		log.Fatal(err)
	}

	stored := 0
	for turn := 1; turn <= 12; turn++ {
		body := Turn{
			TurnId: pointer(fmt.Sprintf("t-%d", turn)),
			Messages: []map[string]any{
				{"role": "user", "content": fmt.Sprintf("What does invoice %d say?", 4700+turn)},
				{"role": "assistant", "content": fmt.Sprintf("Invoice %d says %s.", 4700+turn, strings.Repeat("ledger ", 100))},
			},
		}
		if turn == 1 {
			body.Policy = &Policy{ContextWindow: pointer(4_000)}
		}
		appended, err := client.AppendTurnWithResponse(ctx, session, nil, body)
		stored = answered(appended.JSON200, appended.Body, err).ThroughSeq
	}

	read, err := client.ContextWithResponse(ctx, session, nil)
	before := answered(read.JSON200, read.Body, err)
	compacted, err := client.CompactWithResponse(ctx, session, nil)
	outcome := answered(compacted.JSON200, compacted.Body, err)
	read, err = client.ContextWithResponse(ctx, session, &ContextParams{Format: pointer(ContextParamsFormatOpenaiChat)})
	after := answered(read.JSON200, read.Body, err)
	searched, err := client.SearchWithResponse(ctx, session, SearchRequest{Query: "4703", Limit: pointer(2)})
	found := []int{}
	for _, hit := range answered(searched.JSON200, searched.Body, err).Hits {
		found = append(found, hit.Seq)
	}
	replayed, err := client.ReplayWithResponse(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	expanded, err := client.ExpandWithResponse(ctx, session, &ExpandParams{FromSeq: pointer(3), Limit: pointer(2)})
	page := []int{}
	for _, message := range answered(expanded.JSON200, expanded.Body, err).Messages {
		page = append(page, message.Seq)
	}
	missing, err := client.StatusWithResponse(ctx, "nobody")
	problem := answered(missing.ApplicationproblemJSON404, missing.Body, err)

	seen, err := json.Marshal(map[string]any{
		"stored":     stored,
		"shrunk":     after.Tokens < before.Tokens,
		"generation": []int{outcome.Generation, after.Generation},
		"found":      found,
		"replayed":   len(strings.Split(strings.TrimSpace(string(replayed.Body)), "\n")),
		"page":       page,
		"failure":    problem.Failure,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(seen))
}
