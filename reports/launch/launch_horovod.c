/* Horovod: horovodrun, its fusion threshold, and settings that the script imports. Options:
 * horovod.readthedocs.io, "Run Horovod" and "Tensor Fusion". */
#include "launch.h"

#include <string.h>

#define MIB 1048576u

ty_status ty_launch_horovod(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    uint64_t fusion_mb = (ty_launch_bucket_limit(l).bytes + MIB - 1) / MIB;

    TY_CHECK(ty_launch_check_data_parallel(l, "horovod", 0, error), status, cleanup);
    if (strcmp(ty_launch_gradient_precision(l), "bf16") == 0) {
        status = ty_launch_refuse(error, "horovod",
                                  "it halves gradients to fp16 only, and the plan to bf16; plan "
                                  "with --fix compression=fp16 or none");
        goto cleanup;
    }
    ty_text_add(&text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", &text);
    ty_text_add(&text, "set -eu\ncd \"$(dirname \"$0\")\"\n");
    ty_launch_export_environment(l, &text);
    ty_launch_write_script_name(l, &text);
    ty_text_addf(&text, "exec horovodrun -np %u -H ", l->process_count);
    for (uint32_t h = 0; h < l->host_count; h++)
        ty_text_addf(&text, "%s%s:%u", h > 0 ? "," : "", l->hosts[h].name, l->per_host);
    ty_text_addf(&text,
                 " \\\n    --fusion-threshold-mb %llu \\\n"
                 "    python3 \"${TRAINYARD_SCRIPT:-$script}\" \"$@\"\n",
                 (unsigned long long)fusion_mb);
    TY_CHECK(ty_launch_add_settings(l, LAUNCH_HOROVOD, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &text, true, error), status, cleanup);
    status = ty_launch_next(l, error, "./launch.sh");

cleanup:
    ty_text_clear(&text);
    return status;
}
