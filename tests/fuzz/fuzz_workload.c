/* An accepted workload passes the check and survives a round trip. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_workload.h"

#include <math.h>
#include <string.h>

static ty_workload *read_workload(const char *bytes, size_t length, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_workload *workload = NULL;

    if (ty_json_parse(bytes, length, "input", &document, error) == TY_OK)
        MUST((ty_workload_from_json(ty_json_root(document), &workload, error) == TY_OK) ==
             (workload != NULL));
    ty_json_free(document);
    return workload;
}

static void ask_everything(const ty_workload *w)
{
    ty_error error = {0};

    MUST(ty_workload_check(w, "input", &error) == TY_OK);
    MUST(ty_workload_cut_bytes(w, 0) == 0 && ty_workload_cut_bytes(w, w->layer_count) == 0);
    for (uint32_t i = 0; i < w->layer_count && i < 64; i++) {
        char *signature = NULL;
        MUST(ty_layer_signature(w, i, &signature, &error) == TY_OK);
        MUST(strncmp(signature, ty_layer_kind_name(w->layers[i].kind), 3) == 0);
        ty_free(signature);
        if (ty_workload_is_cut(w, i))
            MUST(ty_workload_cut_bytes(w, i) == w->layers[i - 1].output_bytes);
    }
    MUST(ty_workload_forward_flop(w, 0, w->layer_count) >= 0.0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    ty_workload *first = read_workload((const char *)bytes, length, &error), *second;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_digest before, after;

    if (first == NULL) {
        MUST(error.status == TY_EPARSE && strstr(error.message, "expected") != NULL);
        return 0;
    }
    ask_everything(first);
    ty_workload_to_json(first, &writer, NULL);
    MUST(ty_text_check(&text, &error) == TY_OK);
    second = read_workload(text.data, text.length, &error);
    MUST(second != NULL);
    MUST(ty_workload_digest(first, &before, &error) == TY_OK);
    MUST(ty_workload_digest(second, &after, &error) == TY_OK);
    MUST(strcmp(before.hex, after.hex) == 0);
    ty_text_clear(&text);
    ty_workload_free(first);
    ty_workload_free(second);
    return 0;
}
