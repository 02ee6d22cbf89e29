/* TOML, YAML and JSON of training programs as a flat list. */
#include "training_pairs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    training_pairs pairs = {0};
    ty_error error = {0};
    char *text = malloc(size + 1);

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (ty_training_pairs_read("config", text, size, &pairs, &error) == TY_OK) {
        for (uint32_t i = 0; i < pairs.count; i++)
            if (pairs.pairs[i].key == NULL || pairs.pairs[i].value == NULL)
                abort();
    } else if (error.message[0] == '\0') {
        abort();
    }
    ty_training_pairs_clear(&pairs);
    free(text);
    return 0;
}
