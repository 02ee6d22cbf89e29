/* PyTorch's launcher, on each host once; the plan becomes settings that the script imports.
 * Options: docs.pytorch.org, torchrun (torch.distributed.run). */
#include "launch.h"

#define RENDEZVOUS_PORT 29500 /* torchrun's default */

void ty_launch_write_devices(const launch *l, ty_text *text)
{
    if (!l->has_accelerators)
        return;
    ty_text_add(text, "# What a scheduler hands out, else the plan's devices.\n"
                      "export CUDA_VISIBLE_DEVICES=\"${CUDA_VISIBLE_DEVICES:-");
    for (uint32_t d = 0; d < l->per_host; d++)
        ty_text_addf(text, "%s%u", d > 0 ? "," : "", l->first_slot + d);
    ty_text_add(text, "}\"\n");
}

void ty_launch_write_rendezvous(const launch *l, ty_text *text)
{
    if (l->host_count == 1) {
        ty_text_addf(text, "exec ${TORCHRUN:-torchrun} --standalone --nproc_per_node=%u \\\n",
                     l->per_host);
        return;
    }
    ty_text_addf(text,
                 "exec ${TORCHRUN:-torchrun} --nnodes=%u --nproc_per_node=%u "
                 "--node_rank=\"${NODE_RANK:?}\" \\\n"
                 "    --master_addr=\"${MASTER_ADDR:-%s}\" "
                 "--master_port=\"${MASTER_PORT:-%d}\" \\\n",
                 l->host_count, l->per_host, l->hosts[0].name, RENDEZVOUS_PORT);
}

/* The shell that starts one host's processes. */
void ty_launch_write_torchrun(const launch *l, ty_text *text)
{
    ty_text_add(text, "set -eu\ncd \"$(dirname \"$0\")\"\n");
    ty_launch_export_environment(l, text);
    ty_launch_write_devices(l, text);
    ty_text_add(text, "# TORCHRUN: the launcher's name, where it has another one.\n");
    if (l->host_count > 1) {
        ty_text_add(text, "# NODE_RANK: the number of this host, from 0, in the order");
        for (uint32_t h = 0; h < l->host_count && h < 8; h++)
            ty_text_addf(text, " %s", l->hosts[h].name);
        ty_text_addf(text, "%s\n", l->host_count > 8 ? " ..." : "");
    }
    ty_launch_write_rendezvous(l, text);
}

ty_status ty_launch_torchrun(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};

    TY_CHECK(ty_launch_check_data_parallel(l, "torchrun", 3, error), status, cleanup);
    ty_text_add(&text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", &text);
    ty_launch_write_script_name(l, &text);
    ty_launch_write_torchrun(l, &text);
    ty_text_add(&text, "    \"${TRAINYARD_SCRIPT:-$script}\" \"$@\"\n");
    TY_CHECK(ty_launch_add_settings(l, LAUNCH_PYTORCH, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &text, true, error), status, cleanup);
    status = ty_launch_next(
        l, error,
        l->host_count > 1 ? "NODE_RANK=0 ./launch.sh   # on each host its number" : "./launch.sh");

cleanup:
    ty_text_clear(&text);
    return status;
}
