// Decodes every document of standard input into the type of its kind, strictly: a field that the type does not have, a
// field that is there twice, and a value of another type are errors. Prints the kinds.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	log.SetFlags(0)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			log.Fatalf("%v\n%s", err, document)
		}
		fmt.Println(kind.Kind)
	}
}
