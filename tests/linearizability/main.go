// Judges by porcupine whether what clients did to rows and saw of them is linearizable. Reads calls of all clients from
// standard input, a JSON object a line; ends with 1 and the row if it is not.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// For a row: a longer search is no answer. It was enough for 70,000 calls of 64 rows.
const timeMax = 2 * time.Minute

// call is one of a client. Its value is the one that it wrote, or saw; an empty one stands for no row.
type call struct {
	Row   int    `json:"row"`
	Begun int64  `json:"begun"`
	Ended int64  `json:"ended"`
	Kind  string `json:"kind"`
	Value string `json:"value"`
	// The value that a replacement is bound to.
	Over string `json:"over"`
	// Whether the client never heard how it ended.
	IsUnknown bool `json:"is_unknown"`
}

// row is a register whose state is its value. Versions are left out: they are how Umbo makes it so.
var row = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		before, call := state.(string), input.(call)
		switch call.Kind {
		case "read":
			return before == call.Value, before
		case "put":
			return true, call.Value
		case "replace":
			// An unknown one may have been refused.
			if before != call.Over {
				return call.IsUnknown, before
			}
			return true, call.Value
		case "increment":
			number, _ := strconv.Atoi(before)
			next := strconv.Itoa(number + 1)
			return call.IsUnknown || next == call.Value, next
		}
		panic("no kind of call: " + call.Kind)
	},
}

func main() {
	byRow := map[int][]porcupine.Operation{}
	lines, calls := bufio.NewScanner(os.Stdin), 0
	for ; lines.Scan(); calls++ {
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		ended := one.Ended
		if one.IsUnknown {
			ended = math.MaxInt64
		}
		of := porcupine.Operation{Input: one, Call: one.Begun, Return: ended}
		byRow[one.Row] = append(byRow[one.Row], of)
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
	for number, operations := range byRow {
		if result := porcupine.CheckOperationsTimeout(row, operations, timeMax); result != porcupine.Ok {
			fmt.Printf("row %d: %s\n", number, result)
			os.Exit(1)
		}
	}
	fmt.Printf("%d calls of %d rows are linearizable\n", calls, len(byRow))
}
