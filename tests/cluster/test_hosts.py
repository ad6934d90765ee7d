"""Dispatchers on several hosts find and ask one another, with certificates and without."""

import contextlib
import json
import pathlib
import signal
import socket
import ssl
import threading

import pytest

from bulk import step_until
from certificates import Authority
from clock import Clock
from deadline import Waiting, standing_still
from harness import memory_folder, receive, wait_until
from hosts import CERTIFICATES, DISPATCHERS, KINDS, MUTUAL_TLS, NODES, PLAIN, STRANGER, Hosts
from network import HERE, Network, may_be_made, sent_to

# Time that all have to answer a question, and in which a question is good.
ANSWER_SECONDS, AGE_SECONDS = 3, 30
HOUR_SECONDS = 3_600
# The check of `umbo doctor` for what the fleet answers.
FINDING = "other dispatchers"
# Exit code of a command that finds nothing of that name.
NOT_FOUND = 3
# A route that every dispatcher serves, asked as a client would.
QUESTION = b"GET /admin/v1/shards HTTP/1.1\r\nHost: umbo-dispatcher\r\nConnection: close\r\n\r\n"
ALL_KINDS = pytest.mark.parametrize("hosts_of_file", KINDS, indirect=True)
BOTH = pytest.mark.parametrize("hosts_of_file", [PLAIN, CERTIFICATES], indirect=True)
WITH_CERTIFICATES = pytest.mark.parametrize("hosts_of_file", [CERTIFICATES], indirect=True)


@contextlib.contextmanager
def started(authority, kind, prepare=lambda hosts: None):
    may_be_made()
    with memory_folder() as folder, Network(*NODES, *DISPATCHERS, STRANGER) as network:
        hosts = Hosts(folder / "cluster", network, authority, kind)
        try:
            prepare(hosts)
            yield hosts.start()
            network.mend()
            hosts.stop()
        finally:
            hosts.discard()


@pytest.fixture(scope="module")
def hosts_of_file(authority, request):
    with started(authority, request.param) as hosts:
        yield hosts


@pytest.fixture
def hosts(hosts_of_file):
    """A cluster that the tests of this file share, whole again."""
    hosts_of_file.network.mend()
    hosts_of_file.tier.clock.go()
    hosts_of_file.fleet(hosts_of_file.by_name["left"])
    return hosts_of_file


def answered(answers):
    """Hosts whose dispatchers answered this question well; an answer to an earlier one does not count."""
    now = max(one.get("answered_ms", 0) for one in answers.values())
    is_good = lambda one: one.get("status") == 200 and one["answered_ms"] == now and "error" not in one  # noqa: E731
    return {name for name, one in answers.items() if is_good(one)}


@ALL_KINDS
def test_each_asks_all_with_no_setting_but_its_certificate(hosts):
    for name, asked in hosts.by_name.items():
        assert "listen" not in asked.settings["cluster"] and "advertise" not in asked.settings["cluster"]
        listed = hosts.fleet(asked)
        assert {hosts.host_of(one) for one in listed} == set(DISPATCHERS)
        assert hosts.host_of(listed[0]) == name and listed[0]["is_self"]
        # Only by this address can it be reached from the others.
        assert hosts.listens(asked)[0] == asked.host
        for route in ("shards", "loads", "hot", "shed", "callers", "cluster", "heat?range=5m", "history?range=5m"):
            answers = hosts.ask(asked, route)
            assert answered(answers) == set(DISPATCHERS), (route, answers)


@ALL_KINDS
def test_a_request_is_explained_at_another_host(hosts):
    left, right = hosts.by_name["left"], hosts.by_name["right"]
    refused = hosts.client(right).get("/v1/ns/nowhere/kv/a")
    request_id = refused.json()["request_id"]
    answers = hosts.ask(left, f"why/{request_id}")
    assert {name: one["status"] for name, one in answers.items()} == {"left": 404, "middle": 404, "right": 200}
    assert answers["right"]["answer"]["id"] == request_id
    if hosts.kind != MUTUAL_TLS:
        # Operators' commands show no certificate.
        assert "namespace-not-found" in hosts.umbo(left, "why", request_id)
        listed = hosts.umbo(left, "fleet")
        assert listed.count("live") == 3 and all(one.host in listed for one in hosts.dispatchers), listed


@contextlib.contextmanager
def another(hosts, of_cluster=None):
    """One more dispatcher, on the host of the stranger."""
    made = hosts.dispatcher(STRANGER, of_cluster)
    made.clock = hosts.tier.clock
    try:
        yield made.start()
        made.stop()
    finally:
        made.discard()


def asked_until(hosts, asked, is_so, what):
    """The answers to a question once they are so."""

    def found():
        answers = hosts.ask(asked, "shards")
        return answers if is_so(answers) else None

    return wait_until(found, what)


@BOTH
def test_a_fixed_port_is_told_with_the_address_of_the_host(hosts):
    left = hosts.by_name["left"]
    with another(hosts, {"listen": "0.0.0.0:7410"}) as fixed:
        assert hosts.listens(fixed) == ("0.0.0.0", 7410)
        everybody = {*DISPATCHERS, STRANGER}
        asked_until(hosts, left, lambda answers: answered(answers) == everybody, "it answers the others")
        assert answered(hosts.ask(fixed, "shards")) == everybody


@WITH_CERTIFICATES
def test_the_address_that_is_told_is_the_one_that_is_asked(hosts, authority):
    left = hosts.by_name["left"]
    with contextlib.closing(Impostor(hosts, Authority(hosts.folder / "strangers"))) as impostor:
        with another(hosts, {"advertise": impostor.address}):
            answers = asked_until(hosts, left, lambda answers: "error" in answers.get(STRANGER, {}), "it is known")
            assert answered(answers) == set(DISPATCHERS)
            error = answers[STRANGER]["error"]
            assert impostor.address in error and "certificate" in error, error
            assert impostor.handshakes == []


class Impostor:
    """Listens here, where a dispatcher is said to be, with a certificate of the right name."""

    def __init__(self, hosts, authority):
        own = authority.settings("dispatcher")["cluster"]
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(own["certificate"], own["key"])
        self.handshakes = []
        self.socket = socket.create_server((hosts.network.address(HERE), 0))
        self.address = "{}:{}".format(*self.socket.getsockname())
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                with connection, contextlib.suppress(OSError), self.tls.wrap_socket(connection, server_side=True) as read:
                    # With TLS 1.3 the other end may say only now that it refuses the certificate.
                    if said := read.recv(1):
                        self.handshakes.append(said)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@WITH_CERTIFICATES
def test_a_process_with_the_certificate_of_another_role_is_no_dispatcher(hosts, authority):
    left = hosts.by_name["left"]
    of_node = authority.settings("node", names=f"IP:{hosts.network.address(STRANGER)}")
    with another(hosts, of_node["cluster"]) as wrong:
        answers = asked_until(hosts, left, lambda answers: "error" in answers.get(STRANGER, {}), "it is known")
        assert answered(answers) == set(DISPATCHERS)
        assert "umbo-dispatcher" in answers[STRANGER]["error"], answers[STRANGER]
        # Nor is it answered, whatever it asks.
        answers = hosts.ask(wrong, "shards")
        assert answered(answers) == {STRANGER}
        for name in DISPATCHERS:
            assert "umbo-dispatcher" in answers[name]["error"], answers[name]


def names_shown(address, files):
    """Names in the certificate that a dispatcher shows to another one."""
    tls = ssl.create_default_context(cafile=files["ca"])
    tls.check_hostname = False
    tls.load_cert_chain(files["certificate"], files["key"])
    with socket.create_connection(address, 30) as raw, tls.wrap_socket(raw) as read:
        return {name for _, name in read.getpeercert()["subjectAltName"]}


@WITH_CERTIFICATES
def test_a_renewed_certificate_is_used_without_a_restart(hosts, authority):
    right, own = hosts.by_name["right"], hosts.by_name["left"].settings["cluster"]
    files = {key: pathlib.Path(right.settings["cluster"][key]) for key in ("certificate", "key")}
    before = {key: path.read_bytes() for key, path in files.items()}

    def replace(content, name):
        for key, path in files.items():
            path.write_bytes(content[key])
        right.process.send_signal(signal.SIGHUP)
        wait_until(lambda: names_shown(hosts.listens(right), own) == {name}, "the certificate is read again")

    other = authority.settings("node", names=f"IP:{right.host}")["cluster"]
    # Connections that are there keep the certificate that they began with: somebody new sees the other one.
    with another(hosts) as fresh:
        try:
            replace({key: pathlib.Path(other[key]).read_bytes() for key in files}, right.host)
            named = asked_until(hosts, fresh, lambda answers: "error" in answers["right"], "it is not answered")
            assert "umbo-dispatcher" in named["right"]["error"]
            assert "umbo-dispatcher" in hosts.ask(right, "shards")[STRANGER]["error"]
        finally:
            replace(before, "umbo-dispatcher")
        for asked, others in ((fresh, {"right"}), (right, {STRANGER})):
            asked_until(hosts, asked, lambda answers: others <= answered(answers), "the certificate is good again")


def says(address, files=None, name="umbo-dispatcher"):
    """What a dispatcher says to somebody with these certificates; nothing where it does not listen to them."""
    tls = ssl.create_default_context(cafile=files["ca"]) if files else ssl._create_unverified_context()
    if files:
        tls.load_cert_chain(files["certificate"], files["key"])
    try:
        with socket.create_connection(address, 30) as raw, tls.wrap_socket(raw, server_hostname=name) as read:
            read.sendall(QUESTION)
            return receive(read)
    except OSError:
        return b""


@WITH_CERTIFICATES
def test_the_port_of_the_fleet_listens_to_dispatchers_only(hosts, authority):
    left = hosts.by_name["left"]
    port = hosts.listens(left)
    strangers = Authority(hosts.folder / "more-strangers").settings("dispatcher")["cluster"]
    strangers["ca"] = str(authority.folder / "ca.pem")
    for files in (
        None,
        strangers,
        authority.settings("dispatcher", last="20210101000000Z")["cluster"],
        authority.settings("dispatcher", first="20980101000000Z")["cluster"],
    ):
        assert says(port, files) == b"", files
    refused = says(port, authority.settings("node")["cluster"])
    assert b" 403 " in refused and b"umbo-dispatcher" in refused, refused
    # A dispatcher of another cluster of the same authority has no key of this one.
    unsigned = says(port, authority.settings("dispatcher")["cluster"])
    assert b" 401 " in unsigned and b"signature" in unsigned, unsigned
    with socket.create_connection(port, 30) as plain:
        plain.sendall(QUESTION)
        # A TLS alert, or nothing.
        assert plain.recv(1) in (b"\x15", b"")
    assert answered(hosts.ask(hosts.by_name["right"], "shards")) == set(DISPATCHERS)


@pytest.mark.parametrize("hosts_of_file", [PLAIN], indirect=True)
def test_without_certificates_a_stranger_is_answered_nothing(hosts):
    port = hosts.listens(hosts.by_name["left"])
    with socket.create_connection(port, 30) as plain:
        plain.sendall(QUESTION)
        said = receive(plain)
    assert b" 401 " in said and b"signature" in said, said
    assert answered(hosts.ask(hosts.by_name["right"], "shards")) == set(DISPATCHERS)


def replayed(address, sent, *signs):
    """The sign that stands in the answer to these bytes."""
    with socket.create_connection(address, 30) as raw:
        raw.sendall(sent)
        said = b""
        while more := raw.recv(1 << 16):
            said += more
            if found := next((sign for sign in signs if sign in said), None):
                return found
    raise AssertionError(said)


@pytest.mark.parametrize("hosts_of_file", [PLAIN], indirect=True)
def test_a_recorded_question_is_worth_nothing_elsewhere_or_later(hosts):
    left, right = hosts.by_name["left"], hosts.by_name["right"]
    signs = (b'"shards"', b"had this address before", b"more than 30 s")
    with another(hosts) as asked:
        address = hosts.listens(asked)
        hosts.network.recorded = []
        try:
            asked_until(hosts, left, lambda answers: STRANGER in answered(answers), "it answers")
            question = sent_to(*address, hosts.network.recorded)
        finally:
            hosts.network.recorded = None
        # Whoever could record it has heard the answer, too.
        assert replayed(address, question, *signs) == signs[0]
        assert replayed(hosts.listens(right), question, *signs) == signs[1]
        hosts.tier.clock.advance(2 * AGE_SECONDS)
        assert replayed(address, question, *signs) == signs[2]


@BOTH
def test_an_address_that_is_of_no_use_is_named_by_those_who_try_it(hosts):
    left = hosts.by_name["left"]
    with another(hosts, {"listen": "127.0.0.1:7410"}):
        answers = asked_until(hosts, left, lambda answers: "error" in answers.get(STRANGER, {}), "it is known")
        assert answered(answers) == set(DISPATCHERS)
        assert "127.0.0.1:7410" in answers[STRANGER]["error"], answers[STRANGER]


@BOTH
def test_commands_name_the_dispatchers_that_do_not_answer(hosts):
    left = hosts.by_name["left"]
    commands = (("fleet",), ("ps",), ("ps", "-o", "json"), ("why", "an-unknown-request"))
    finding = lambda: next(  # noqa: E731
        one for one in json.loads(hosts.ran(left, "doctor", "-o", "json").stdout)["checks"] if one["check"] == FINDING
    )
    said = [hosts.ran(left, *command) for command in commands]
    assert not any("no answer from" in one.stderr for one in said), said
    assert finding()["health"] == "ok"
    with another(hosts, {"listen": "127.0.0.1:7410"}):
        asked_until(hosts, left, lambda answers: "error" in answers.get(STRANGER, {}), "it is known")
        # Those of earlier tests are away, and are not asked.
        names = {one["about"]["name"] for one in hosts.listed(left) if hosts.host_of(one) == STRANGER}
        for command in commands:
            ran = hosts.ran(left, *command)
            assert [name for name in names if f"no answer from {name}: 127.0.0.1:7410" in ran.stderr], (command, ran)
            assert ran.returncode == (NOT_FOUND if command[0] == "why" else 0), (command, ran)
            if command == ("fleet",):
                states = {line.split()[0]: line.split()[1] for line in ran.stdout.splitlines()[1:]}
                assert {states[name] for name in names} == {"away"}, "what is said to give no answer is not live"
        assert finding()["health"] == "problem"
        assert [name for name in names if f"{name}: 127.0.0.1:7410" in finding()["found"]], finding()
        assert "cluster.listen" in finding()["advice"]


def answers_in_time(hosts, asked):
    """The answers to a question that somebody may not answer, all within the time of all."""
    clock = hosts.tier.clock
    with standing_still(clock):
        began = clock.monotonic()
        waiting = Waiting(lambda: hosts.ask(asked, "shards"))
        step_until(clock, waiting.are_answered, "the time of all is over", step=0.1)
        (answers,) = waiting.answers()
        assert clock.monotonic() - began < 3 * ANSWER_SECONDS
    return answers


@BOTH
def test_a_dispatcher_that_one_cannot_reach_is_named_by_it_with_the_reason(hosts):
    left, middle = hosts.by_name["left"], hosts.by_name["middle"]
    # It has a connection, which says nothing from now on. The other one still writes its row.
    asked_until(hosts, left, lambda answers: answered(answers) == set(DISPATCHERS), "all answer")
    hosts.network.cut("right", "left")
    # The second question needs a new connection.
    for _ in range(2):
        answers = answers_in_time(hosts, left)
        assert answered(answers) == {"left", "middle"}
        assert hosts.by_name["right"].host in answers["right"]["error"], answers["right"]
    assert answered(hosts.ask(middle, "shards")) == set(DISPATCHERS)
    hosts.network.mend()
    asked_until(hosts, left, lambda answers: answered(answers) == set(DISPATCHERS), "it is asked again")


@BOTH
def test_a_dispatcher_that_is_cut_off_is_away_and_comes_back_as_the_same(hosts):
    left, right = hosts.by_name["left"], hosts.by_name["right"]
    before = hosts.told(left, "id")
    hosts.network.cut("right")
    answers = answers_in_time(hosts, left)
    assert answered(answers) == {"left", "middle"}
    expected = {"left": "live", "middle": "live", "right": "away"}
    is_away = lambda: hosts.told(left, "state") == expected  # noqa: E731
    step_until(hosts.tier.clock, is_away, "its row has expired", step=0.5)
    assert answered(hosts.ask(left, "shards")) == {"left", "middle"}
    # What is cut off serves its own view, and says that it is alone.
    assert right.is_running()
    hosts.network.mend()
    hosts.fleet(left)
    assert hosts.told(left, "id") == before


@BOTH
def test_a_lossy_and_late_network_costs_time_and_no_answer(hosts):
    left = hosts.by_name["left"]
    hosts.network.delay_seconds, hosts.network.loss_ratio = 0.02, 0.02
    try:
        asked_until(hosts, left, lambda answers: answered(answers) == set(DISPATCHERS), "all answer")
        assert hosts.network.lost > 0
    finally:
        hosts.network.delay_seconds = hosts.network.loss_ratio = 0


def test_a_dispatcher_that_starts_before_the_nodes_have_names_is_found(authority, folder):
    may_be_made()
    with Network(*NODES, *DISPATCHERS) as network:
        hosts = Hosts(folder / "cluster", network, authority, domain="umbo.test")
        left, right = hosts.by_name["left"], hosts.by_name["right"]
        try:
            for name in network.names[1:]:
                network.tell(name, {} if name == "left" else hosts.node_names)
            left.launch()
            wait_until(lambda: "waiting for the shard nodes" in left.log_text(), "it knows no node")
            hosts.tier.start()
            network.tell("left", hosts.node_names)
            left.wait_until_it_serves()
            right.start()
            for asked in (left, right):
                hosts.fleet(asked, 2)
                answers = hosts.ask(asked, "shards")
                assert answered(answers) == {"left", "right"}, answers
        finally:
            hosts.discard()


@pytest.mark.parametrize("kind", [PLAIN, CERTIFICATES])
@pytest.mark.parametrize("ahead", [-HOUR_SECONDS, HOUR_SECONDS])
def test_a_wrong_clock_hides_no_dispatcher_and_forges_none(authority, kind, ahead):
    def prepare(hosts):
        wrong = hosts.by_name["right"]
        wrong.clock = Clock()
        wrong.clock.jump(ahead)

    with started(authority, kind, prepare) as hosts:
        left, right = hosts.by_name["left"], hosts.by_name["right"]
        for asked in (left, right):
            hosts.fleet(asked)
            asked_until(hosts, asked, lambda answers: answered(answers) == set(DISPATCHERS), "all answer")
        # Neither stays for another hour, nor goes an hour early.
        right.kill()
        clock = hosts.tier.clock
        is_away = lambda: hosts.told(left, "state")["right"] == "away"  # noqa: E731
        began = clock.monotonic()
        step_until(clock, is_away, "it is away", step=0.5)
        assert clock.monotonic() - began < HOUR_SECONDS / 2
        right.start()
        hosts.fleet(left)
