"""JSON documents against docs/schemas: check_json.py SCHEMA_FOLDER FILE..."""

import json
import pathlib
import sys

import jsonschema

folder = pathlib.Path(sys.argv[1])
store = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
for name, schema in store.items():
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == name, name
mistakes = 0
for path in sys.argv[2:]:
    document = json.loads(pathlib.Path(path).read_text())
    noun = document.get("schema", "").removeprefix("trainyard.").partition("/")[0]
    schema = store.get(f"{noun}.json")
    if schema is None:
        errors = [f"no schema for {document.get('schema')}"]
    else:
        resolver = jsonschema.RefResolver("", schema, store=store)
        validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
        errors = [
            "/".join(map(str, e.absolute_path)) + ": " + e.message[:200]
            for e in validator.iter_errors(document)
        ]
    for error in errors[:5]:
        print(f"{path}: {error}")
    mistakes += len(errors)
sys.exit(mistakes > 0)
