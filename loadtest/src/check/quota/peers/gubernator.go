// gubernator as its own command starts it, but with a name for each server: servers of one host find each other.
package main

import (
	"context"
	"os"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
)

func main() {
	settings, err := os.Open(os.Args[1])
	if err != nil {
		logrus.Fatal(err)
	}
	config, err := gubernator.SetupDaemonConfig(logrus.StandardLogger(), settings)
	if err != nil {
		logrus.Fatal(err)
	}
	config.MemberListPoolConf.NodeName = config.AdvertiseAddress
	if _, err := gubernator.SpawnDaemon(context.Background(), config); err != nil {
		logrus.Fatal(err)
	}
	select {}
}
