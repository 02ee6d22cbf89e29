"""Every document of a YAML file against the schema of its kind; names it where it is wrong."""

import pathlib
import sys

import jsonschema
import yaml

FOLDER = pathlib.Path(__file__).parent / "schemas"
KINDS = {
    "MPIJob": "mpijob.yaml",
    "PyTorchJob": "pytorchjob.yaml",
    "ConfigMap": "config.yaml",
    "PersistentVolumeClaim": "config.yaml",
}


def main():
    pod = yaml.safe_load((FOLDER / "pod.yaml").read_text())
    mistakes = 0
    documents = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
    for document in documents:
        schema = yaml.safe_load((FOLDER / KINDS[document["kind"]]).read_text())
        resolver = jsonschema.RefResolver("", schema, store={"pod.yaml": pod})
        validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
        for error in validator.iter_errors(document):
            mistakes += 1
            place = "/".join(str(part) for part in error.absolute_path)
            print(f"{sys.argv[1]}: {document['kind']}/{place}: {error.message[:300]}")
    kinds = [d["kind"] for d in documents]
    if sys.argv[2:] != kinds:
        mistakes += 1
        print(f"{sys.argv[1]}: found {kinds}, expected {sys.argv[2:]}")
    sys.exit(mistakes > 0)


main()
