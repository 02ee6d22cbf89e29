/* DeepSpeed's ds_config.json is recognised and refused: it has batch and optimizer, but no model.
 * The message says what to import instead and repeats the batch, which the import takes as an
 * option. */
#include "import.h"

#include <stdio.h>
#include <string.h>

static bool probe(ty_import_source *source)
{
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "zero_optimization"};
    const ty_json *root = ty_import_json(source);

    if (root == NULL || !ty_json_is_object(root) || ty_json_has(root, "schema"))
        return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ty_json_has(root, keys[i]))
            return true;
    return false;
}

static ty_status refuse(ty_import_source *source, ty_workload **out)
{
    const ty_json *root = ty_import_json(source);
    char batch[64] = "";
    uint64_t samples;

    (void)out;
    if (ty_json_has(root, "train_batch_size") &&
        ty_json_uint64(root, "train_batch_size", 1, 1u << 30, &samples, NULL) == TY_OK)
        snprintf(batch, sizeof batch, " with batch=%llu behind it", (unsigned long long)samples);
    return ty_fail(source->error, TY_EPARSE,
                   "%s: found a DeepSpeed configuration, which has no model in it; expected the "
                   "model's config.json%s",
                   source->path, batch);
}

const ty_import_format ty_import_deepspeed = {"DeepSpeed configuration", probe, refuse, true};
