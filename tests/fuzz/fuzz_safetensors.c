/* Safetensors: tensors of an accepted file cover all data after the header, each byte once. */
#include "fuzz.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    safetensors *file = NULL;
    ty_error error = {0};
    const ty_status status = safetensors_parse(bytes, length, "input", &file, &error);
    unsigned char *covered;
    uint64_t header = 0;

    MUST(status == TY_OK || status == TY_EPARSE);
    if (status == TY_EPARSE) {
        MUST(strncmp(error.message, "input:", 6) == 0);
        return 0;
    }
    for (int i = 0; i < 8; i++)
        header |= (uint64_t)bytes[i] << (8 * i);
    covered = calloc(length, 1);
    for (uint64_t t = 0; t < safetensors_count(file); t++) {
        const safetensors_tensor *tensor = safetensors_at(file, t);
        uint64_t elements = 1, last = 0;

        for (uint32_t d = 0; d < tensor->dimension_count; d++)
            elements *= tensor->dimensions[d];
        MUST(elements == tensor->elements);
        MUST(safetensors_find(file, tensor->name) != NULL);
        MUST(tensor->data >= bytes + 8 + header && tensor->data <= bytes + length);
        if (tensor->type == SAFETENSORS_OTHER || elements == 0)
            continue;
        last = elements * (tensor->type == SAFETENSORS_F32   ? 4
                           : tensor->type == SAFETENSORS_F64 ? 8
                                                             : 2);
        MUST(last <= (uint64_t)(bytes + length - tensor->data));
        for (uint64_t i = 0; i < last; i++)
            MUST(covered[(uint64_t)(tensor->data - bytes) + i]++ == 0);
        (void)safetensors_float(tensor, elements - 1);
    }
    free(covered);
    safetensors_close(file);
    return 0;
}
