"""As test_generators.py, for Java, whose generator and compiler take as long as those of all others together."""

import shutil

from languages import check_round_trip, run, workshop

GENERATOR = "org.openapitools:openapi-generator-cli:7.25.0"
# Programs that run for seconds are not worth being optimized while they run.
SHORT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def jars(folder, *command):
    """Fetches jars with Maven, where they are not there yet."""
    to = folder / f"jars-{command[0].replace(':', '-')}"
    if not to.exists():
        arrived = to.with_suffix(".part")
        run(folder, "mvn", "-q", "-B", *command, f"-DoutputDirectory={arrived}")
        arrived.rename(to)
    return sorted(to.iterdir())


def test_java(server):
    folder = workshop(server, "java")
    (generator,) = jars(folder, "dependency:copy", f"-Dartifact={GENERATOR}")
    libraries = jars(folder, "dependency:copy-dependencies")
    for made in ("client", "classes"):
        shutil.rmtree(folder / made, ignore_errors=True)
    options = "openApiNullable=false,useSingleRequestParameter=true"
    generate = ("generate", "-g", "java", "--additional-properties", options)
    run(folder, "java", *SHORT, "-jar", generator, *generate, "-i", "openapi.json", "-o", "client")
    sources = sorted((folder / "client/src/main").rglob("*.java"))
    classes = ("-cp", f"{':'.join(map(str, libraries))}:classes")
    compiler = ("javac", *(f"-J{option}" for option in SHORT), "-nowarn")
    run(folder, *compiler, *classes, "-d", "classes", *sources, "Roundtrip.java")
    check_round_trip(server, folder, "java", *SHORT, *classes, "Roundtrip")
