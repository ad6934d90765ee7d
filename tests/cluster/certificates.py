"""An authority of the tests, and certificates that it signs."""

import subprocess

LOOPBACK = "IP:127.0.0.1,DNS:localhost"
# By this name dispatchers know one another, wherever they are.
OF_DISPATCHERS = "DNS:umbo-dispatcher"


class Authority:
    """Signs certificates of processes, for both ends of a connection."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        folder.mkdir(exist_ok=True)
        (folder / "index").write_text("")
        self.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-subj", "/CN=ca",
                     "-days", "2", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-out", "ca.pem")  # fmt: skip
        (folder / "ca.conf").write_text(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nnew_certs_dir = .\ndefault_md = sha256\n"
            "policy = any\nrand_serial = yes\nunique_subject = no\n[any]\ncommonName = supplied\n"
        )

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def settings(self, name="node", first="20200101000000Z", last="20991231235959Z", names=None):
        """Makes a certificate valid from first to last; as the settings of `[cluster]`. Its names are those of
        loopback, or of the role where `name` is `dispatcher`."""
        self.count += 1
        names = names or (OF_DISPATCHERS if name == "dispatcher" else LOOPBACK)
        stem = f"{name}-{self.count}"
        (self.folder / f"{stem}.ext").write_text(
            f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{stem}.key", "-subj", f"/CN={stem}",
                     "-out", f"{stem}.csr")  # fmt: skip
        self.openssl("ca", "-batch", "-notext", "-config", "ca.conf", "-cert", "ca.pem", "-keyfile", "ca.key",
                     "-in", f"{stem}.csr", "-out", f"{stem}.pem", "-extfile", f"{stem}.ext",
                     "-startdate", first, "-enddate", last)  # fmt: skip
        files = {"certificate": f"{stem}.pem", "key": f"{stem}.key", "ca": "ca.pem"}
        return {"cluster": {name: str(self.folder / file) for name, file in files.items()}}

    def expired(self):
        return self.settings("expired", last="20210101000000Z")
