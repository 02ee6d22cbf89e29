/* TOML, YAML and JSON of training programs, and Megatron-LM's arguments, as a flat list. */
#include "import.h"
#include "training_pairs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    training_pairs pairs = {0};
    ty_error error = {0};
    ty_text behind = {0};
    ty_import_report report = {0};
    char *text = malloc(size + 1);

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    for (int as_arguments = 0; as_arguments < 2; as_arguments++) {
        const ty_status status =
            as_arguments
                ? ty_megatron_settings("arguments", text, size, &pairs, &behind, &report, &error)
                : ty_training_pairs_read("config", text, size, &pairs, &behind, &error);
        for (uint32_t i = 0; status == TY_OK && i < pairs.count; i++)
            if (pairs.pairs[i].key == NULL || pairs.pairs[i].value == NULL)
                abort();
        if (status != TY_OK && error.message[0] == '\0')
            abort();
        ty_training_pairs_clear(&pairs);
    }
    ty_import_report_clear(&report);
    ty_text_clear(&behind);
    free(text);
    return 0;
}
