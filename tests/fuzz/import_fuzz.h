/* Invariants of every importer: an accepted file is a valid workload that survives a round trip, a
 * refused file gets a message. The targets differ in their corpus. */
#ifndef TY_IMPORT_FUZZ_H
#define TY_IMPORT_FUZZ_H

#include "fuzz.h"
#include "import.h"

#include <string.h>

#define MOST_LAYERS_TO_WRITE 60
#ifndef MODEL
#define MODEL NULL /* model for a file that has none */
#endif

static void check_imported(const ty_workload *workload)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    ty_workload *again = NULL;
    ty_digest before, after;

    MUST(ty_workload_check(workload, "input", NULL) == TY_OK);
    if (workload->layer_count > MOST_LAYERS_TO_WRITE)
        return;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = malloc(size + 1);
    const ty_import_options options = {.model = MODEL, .open_model = ty_workload_open};
    ty_workload *workload = NULL;
    ty_import_report report = {0};
    ty_error error = {0};

    MUST(bytes != NULL);
    memcpy(bytes, data, size);
    bytes[size] = '\0';
    if (ty_import_bytes("input", bytes, size, &options, &workload, &report, &error) == TY_OK) {
        MUST(report.format != NULL);
        check_imported(workload);
        ty_import_report_clear(&report);
        ty_workload_free(workload);
    } else {
        MUST(strncmp(error.message, "input:", 6) == 0);
        MUST(report.notes == NULL && workload == NULL);
    }
    free(bytes);
    return 0;
}

#endif
