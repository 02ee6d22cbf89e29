/* Trainyard's documents, trainyard.workload/1 and trainyard.zoo/1, as rows of the importers'
 * table. */
#include "import.h"
#include "zoo.h"

#include <string.h>

#define WORKLOAD_SCHEMA "trainyard.workload/1"

static bool has_schema(ty_import_source *source, const char *schema)
{
    const ty_json *root;
    const char *found;

    if (strstr(source->bytes, "trainyard.") == NULL || (root = ty_import_json(source)) == NULL)
        return false;
    return ty_json_is_object(root) && ty_json_has(root, "schema") &&
           ty_json_string(root, "schema", &found, NULL) == TY_OK && strcmp(found, schema) == 0;
}

static bool probe_workload(ty_import_source *source)
{
    return has_schema(source, WORKLOAD_SCHEMA);
}

static ty_status read_workload(ty_import_source *source, ty_workload **out)
{
    ty_workload *workload = NULL;

    if (source->options->sequence != 0)
        return ty_fail(source->error, TY_EINVAL,
                       "%s: found sequence=%llu, but the sequence length of a %s file is fixed",
                       source->path, (unsigned long long)source->options->sequence,
                       WORKLOAD_SCHEMA);
    TY_TRY(ty_workload_from_json(ty_import_json(source), &workload, source->error));
    if (source->options->batch != 0)
        workload->global_batch = source->options->batch;
    *out = workload;
    return TY_OK;
}

static bool probe_zoo(ty_import_source *source)
{
    return has_schema(source, TY_ZOO_SCHEMA);
}

static ty_status read_zoo(ty_import_source *source, ty_workload **out)
{
    ty_import_vocabulary(source); /* the family reads or refuses it */
    return ty_zoo_build(ty_import_json(source), source->options, out, source->error);
}

const ty_import_format ty_import_workload = {WORKLOAD_SCHEMA, probe_workload, read_workload, false};
const ty_import_format ty_import_zoo = {TY_ZOO_SCHEMA, probe_zoo, read_zoo, false};
