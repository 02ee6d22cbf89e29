"""Every document of a YAML file against the schema of its kind; names each one that is invalid."""

import pathlib
import sys

import jsonschema
import yaml

FOLDER = pathlib.Path(__file__).parent / "schemas"
BASE = "https://schemas.invalid/"  # nothing is downloaded: all references are in the store
KINDS = {
    "MPIJob": "mpijob.yaml",
    "PyTorchJob": "pytorchjob.yaml",
    "ConfigMap": "config.yaml",
    "PersistentVolumeClaim": "config.yaml",
    "JobSet": "jobset.yaml",
    "TrainingRuntime": "trainjob.yaml",
    "TrainJob": "trainjob.yaml",
    "task of SkyPilot": "skypilot.yaml",
    "configuration of Accelerate": "accelerate.yaml",
}


def kind_of(document):
    """Resources of Kubernetes name their kind."""
    if "kind" in document:
        return document["kind"]
    return "configuration of Accelerate" if "distributed_type" in document else "task of SkyPilot"


def main():
    store = {BASE + name: yaml.safe_load((FOLDER / name).read_text()) for name in ("pod.yaml", "jobset.yaml")}
    mistakes = 0
    documents = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
    for document in documents:
        kind = kind_of(document)
        schema = yaml.safe_load((FOLDER / KINDS[kind]).read_text())
        resolver = jsonschema.RefResolver(BASE, schema, store=store)
        validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
        for error in validator.iter_errors(document):
            mistakes += 1
            place = "/".join(str(part) for part in error.absolute_path)
            print(f"{sys.argv[1]}: {kind}/{place}: {error.message[:300]}")
    kinds = [kind_of(d) for d in documents]
    if sys.argv[2:] != kinds:
        mistakes += 1
        print(f"{sys.argv[1]}: found {kinds}, expected {sys.argv[2:]}")
    sys.exit(mistakes > 0)


main()
