/* What starts a launch.sh once on every host: Slurm's batch script, Kubernetes' jobs
 * (launch_jobset.c), SkyPilot's task. It gives each its number, and all where they meet. Sources:
 * sbatch(1), srun(1) of Slurm 22.05 and later, NVIDIA/pyxis for --container-image; SkyPilot's "Task
 * YAML" and "Distributed multi-node jobs". */
#include "launch.h"
#include "launch_yaml.h"
#include "ty_quote.h"

#include <stdio.h>
#include <string.h>

/* ---- Slurm ------------------------------------------------------------------------------- */

static void write_batch(const launch *l, ty_text *text)
{
    ty_text_add(text, "#!/bin/bash\n");
    ty_launch_comments(l, "# ", text);
    ty_launch_write_directives(l, 1, text);
    ty_text_add(text,
                "# Hosts are numbered as Slurm orders them; words behind the script's name go "
                "to launch.sh.\n"
                "set -eu\n"
                "cd \"$SLURM_SUBMIT_DIR\"\n"
                "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
                "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))\n"
                "export MASTER_ADDR MASTER_PORT\n");
    ty_text_add(text, "# shellcheck disable=SC2016 # a host's number is that of each task\n");
    ty_text_addf(text,
                 "srun --nodes=%u --ntasks=%u --ntasks-per-node=1 --kill-on-bad-exit=1 "
                 "--cpu-bind=none \\\n"
                 "    --cpus-per-task=\"${SLURM_CPUS_ON_NODE:-1}\" \\\n",
                 l->host_count, l->host_count);
    if (l->input->image != NULL) {
        ty_text_add(text, "    --container-image=");
        ty_quote_shell(text, l->input->image);
        ty_text_add(text, " --container-mounts=\"$PWD:$PWD\" --container-workdir=\"$PWD\" \\\n");
    }
    ty_text_add(text, "    sh -c 'NODE_RANK=$SLURM_NODEID exec ./launch.sh \"$@\"' launch.sh "
                      "\"$@\"\n");
}

static ty_status on_slurm(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};

    write_batch(l, &text);
    TY_CHECK(ty_launch_add(l, "job.sbatch", &text, true, error), status, cleanup);
    status = ty_launch_next(l, error, "sbatch job.sbatch");

cleanup:
    ty_text_clear(&text);
    return status;
}

/* ---- SkyPilot ---------------------------------------------------------------------------- */

static void write_task(launch_yaml *y, const launch *l, const char *accelerator)
{
    char line[160];

    ty_launch_yaml_open_document(y);
    ty_launch_yaml_string(y, "name", l->name);
    ty_launch_yaml_number(y, "num_nodes", l->host_count);
    ty_launch_yaml_word(y, "workdir", ".");
    ty_launch_yaml_open(y, "resources", '{');
    if (accelerator != NULL) {
        snprintf(line, sizeof line, "%.100s:%u", accelerator, l->per_host);
        ty_launch_yaml_string(y, "accelerators", line);
    } else {
        snprintf(line, sizeof line, "%u+", l->per_host);
        ty_launch_yaml_string(y, "cpus", line);
    }
    if (ty_launch_has_rdma(l))
        ty_launch_yaml_word(y, "network_tier", "best");
    if (l->input->image != NULL) {
        snprintf(line, sizeof line, "docker:%.140s", l->input->image);
        ty_launch_yaml_string(y, "image_id", line);
    }
    ty_launch_yaml_close(y, '}');
    ty_launch_yaml_lines(y, "run",
                         "export NODE_RANK=\"$SKYPILOT_NODE_RANK\"\n"
                         "MASTER_ADDR=$(echo \"$SKYPILOT_NODE_IPS\" | head -n 1)\n"
                         "export MASTER_ADDR\n"
                         "exec ./launch.sh\n");
    ty_launch_yaml_close_document(y);
}

static ty_status on_skypilot(launch *l, ty_error *error)
{
    const ty_device_type *device =
        ty_cluster_device_type(l->input->cluster, ty_plan_device_of_rank(l->plan, 0));
    ty_status status = TY_OK;
    launch_yaml y;
    ty_text text = {0};
    char *accelerator = NULL;

    if (l->has_accelerators) {
        TY_CHECK(ty_device_alias(device->name, "sky", &accelerator, error), status, cleanup);
        if (accelerator == NULL) {
            status = ty_launch_refuse(error, "skypilot",
                                      "it has no accelerator for %.60s that is "
                                      "known here",
                                      device->name);
            goto cleanup;
        }
    }
    ty_launch_comments(l, "# ", &text);
    ty_launch_yaml_start(&y, &text);
    write_task(&y, l, accelerator);
    TY_CHECK(ty_launch_yaml_end(&y, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "task.yaml", &text, false, error), status, cleanup);
    status = ty_launch_next(l, error, "sky launch task.yaml");

cleanup:
    ty_free(accelerator);
    ty_text_clear(&text);
    return status;
}

/* ---- The table --------------------------------------------------------------------------- */

static const struct place {
    const char *name;
    launch_target put;
} places[] = {
    {"slurm", on_slurm},
    {"k8s-jobset", ty_launch_on_jobset},
    {"k8s-trainjob", ty_launch_on_trainjob}, /* of Kubeflow's Trainer */
    {"skypilot", on_skypilot},
};
#define PLACE_COUNT (sizeof places / sizeof places[0])

ty_status ty_launch_put_on(launch *l, ty_error *error)
{
    const char *close;
    ty_text known = {0};
    ty_status status;

    for (size_t i = 0; i < PLACE_COUNT; i++)
        if (strcmp(places[i].name, l->input->on) == 0)
            return places[i].put(l, error);
    close = ty_suggest(l->input->on, places, PLACE_COUNT, sizeof places[0]);
    for (size_t i = 0; i < PLACE_COUNT; i++)
        ty_text_addf(&known, "%s%s", i > 0 ? ", " : "", places[i].name);
    status = ty_fail(error, TY_EINVAL, "--on: found '%.40s', expected %s%s%s%s", l->input->on,
                     known.data != NULL ? known.data : "", close != NULL ? "; did you mean " : "",
                     close != NULL ? close : "", close != NULL ? "?" : "");
    ty_text_clear(&known);
    return status;
}
