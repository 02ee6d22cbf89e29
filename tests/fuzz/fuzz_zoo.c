/* Zoo files: an accepted one is a valid workload, survives a round trip, and has the same cuts by
 * its graph as by a test of each layer. */
#include "fuzz.h"
#include "ty_workloads.h"
#include "zoo.h"

#include <string.h>

#define MOST_LAYERS_FOR_CUTS 300 /* the slow check is quadratic */

static void check_round_trip(const ty_workload *workload)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    ty_workload *again = NULL;
    ty_digest before, after;

    ty_workload_to_json(workload, &writer, NULL);
    MUST(ty_json_parse(text.data, text.length, "again", &document, NULL) == TY_OK);
    MUST(ty_workload_from_json(ty_json_root(document), &again, NULL) == TY_OK);
    MUST(ty_workload_digest(workload, &before, NULL) == TY_OK);
    MUST(ty_workload_digest(again, &after, NULL) == TY_OK);
    MUST(strcmp(before.hex, after.hex) == 0);
    ty_workload_free(again);
    ty_json_free(document);
    ty_text_clear(&text);
}

static void check_cuts(const ty_workload *workload)
{
    uint32_t *cuts = NULL, count = 0, next = 0;

    MUST(ty_workload_cuts(workload, &cuts, &count, NULL) == TY_OK);
    for (uint32_t layer = 0; layer <= workload->layer_count; layer++) {
        bool is_listed = next < count && cuts[next] == layer;
        MUST(is_listed == ty_workload_is_cut(workload, layer));
        next += is_listed;
    }
    ty_free(cuts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ty_json_document *document = NULL;
    ty_workload *workload = NULL;
    ty_error error = {0};

    if (ty_json_parse((const char *)data, size, "input", &document, &error) != TY_OK)
        return 0;
    if (ty_zoo_build(ty_json_root(document), &(ty_zoo_overrides){0}, &workload, &error) == TY_OK) {
        MUST(ty_workload_check(workload, "input", NULL) == TY_OK);
        if (workload->layer_count <= MOST_LAYERS_FOR_CUTS) {
            check_round_trip(workload);
            check_cuts(workload);
        }
        ty_workload_free(workload);
    } else {
        MUST(error.message[0] != '\0');
    }
    ty_json_free(document);
    return 0;
}
