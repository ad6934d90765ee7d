"""The home of Umbo's own records is lost, and another shard takes its place by an operator's word."""

import shutil
import signal

from harness import Namespace, wait_until
from test_maps import umbo

HOME = 0


def test_a_lost_home_is_replaced_and_the_records_go_on(new_cluster, folder):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("kept")
    keys = [f"key-{number}" for number in range(60)]
    for key in keys:
        assert ns.put(key, value=b"v").status == 201
    lost = cluster.tier.owner(HOME)
    new_home = next(one["id"] for one in cluster.tier.map()["shards"] if one["node"] != lost)
    # Every node has the copy of the last change before the home goes.
    wait_until(lambda: all((node.data / "records").exists() for node in cluster.nodes.values()), "copies are kept")
    cluster.nodes[lost].stop()
    shutil.rmtree(cluster.nodes[lost].data)
    asked = ["cluster", "promote-home", "--map", cluster.tier.map_file, "--shard", new_home]
    done = umbo(*asked, "--dry-run")
    assert done.returncode == 6 and f"no answer from {lost}" in done.stderr and "--without" in done.stderr, done
    done = umbo(*asked, "--without", lost, "--dry-run")
    assert done.returncode == 0 and "in epoch 2" in done.stderr, done
    # The node of the new home does not know the map yet, so this one gives up; the map is written.
    out = folder / "next.toml"
    done = umbo(*asked, "--without", lost, "--out", out, "--wait", "1s")
    assert done.returncode == 6 and "--resume" in done.stderr, done
    cluster.tier.write_map(out.read_text())
    running = [node for node in cluster.nodes.values() if node.is_running()]
    for process in [dispatcher, *running]:
        process.process.send_signal(signal.SIGHUP)
    resume = ["cluster", "promote-home", "--map", out, "--without", lost, "--resume", "--wait", "30s"]
    done = umbo(*resume)
    assert done.returncode == 0 and f"shard {new_home} is the home of the records" in done.stderr, done
    # Once more changes nothing.
    again = umbo(*resume)
    assert again.returncode == 0 and again.stderr.splitlines()[-1] == done.stderr.splitlines()[-1], again
    client = dispatcher.client()
    made = lambda: client.put("/admin/v1/namespaces/young").status in (200, 201)
    wait_until(made, "records are changed in the new home", 30)
    names = [one["name"] for one in client.get("/admin/v1/namespaces").json()["namespaces"]]
    assert {"kept", "young"} <= set(names), names
    answers = [Namespace(client, "kept").get(key).status for key in keys]
    # What was on the other nodes is still there; the shards of the lost one are down.
    assert set(answers) <= {200, 503} and answers.count(200) > 20, answers
