/* Chakra traces: what is accepted is a workload that holds. */
#include "fuzz.h"
#include "import.h"
#include "ty_workloads.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    ty_workload *workload = NULL;
    ty_error error = {0};

    MUST(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (ty_import_bytes("input", text, size, NULL, &workload, NULL, &error) == TY_OK) {
        MUST(ty_workload_check(workload, "input", NULL) == TY_OK);
        ty_workload_free(workload);
    } else {
        MUST(error.message[0] != '\0');
    }
    free(text);
    return 0;
}
