/* Slurm: a batch script. Where the plan follows the hosts, Slurm's block distribution places it;
 * else a host list made from the allocation does. Options: sbatch(1), srun(1) of Slurm 22.05. */
#include "launch.h"

#include <math.h>
#include <string.h>

/* A run is allowed twice what was predicted, and a quarter of an hour for starting. */
#define TIME_FACTOR 2
#define STARTING_MINUTES 15

void ty_launch_write_directives(const launch *l, uint32_t per_host, ty_text *text)
{
    const ty_plan *plan = l->plan;

    ty_text_addf(text, "#SBATCH --job-name=%s\n#SBATCH --nodes=%u\n#SBATCH --ntasks=%u\n", l->name,
                 l->host_count, per_host == 1 ? l->host_count : l->process_count);
    if (per_host > 0)
        ty_text_addf(text, "#SBATCH --ntasks-per-node=%u\n", per_host);
    if (l->has_accelerators && l->per_host > 0)
        ty_text_addf(text, "#SBATCH --gpus-per-node=%u\n", l->per_host);
    else if (l->has_accelerators)
        ty_text_addf(text, "#SBATCH --gpus=%u\n", l->process_count);
    if (l->input->host_names != NULL && strcmp(l->hosts[0].name, "localhost") != 0) {
        ty_text_add(text, "#SBATCH --nodelist=");
        for (uint32_t h = 0; h < l->host_count; h++)
            ty_text_addf(text, "%s%s", h > 0 ? "," : "", l->hosts[h].name);
        ty_text_add(text, "\n");
    }
    if (plan->has_prediction && l->input->steps > 0)
        ty_text_addf(text, "#SBATCH --time=%.0f\n",
                     ceil(l->input->steps * plan->prediction.step_time_s * TIME_FACTOR / 60) +
                         STARTING_MINUTES);
    ty_text_add(text, "#SBATCH --output=%x-%j.out\n");
}

/* Slurm names the hosts; the n-th of the plan becomes the n-th of the allocation. */
static void write_host_file(const launch *l, ty_text *text)
{
    ty_text_add(text, "# The plan goes to and fro between hosts: the host of each process, in "
                      "order.\n"
                      "SLURM_HOSTFILE=$PWD/hosts.$SLURM_JOB_ID\n"
                      "export SLURM_HOSTFILE\n"
                      "trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT\n"
                      "scontrol show hostnames \"$SLURM_JOB_NODELIST\" |\n"
                      "    awk 'NR == FNR { name[NR] = $1; next } /^#/ { next }\n"
                      "         !($2 in host) { host[$2] = ++hosts } { print name[host[$2]] }' \\\n"
                      "        - ranks.txt >\"$SLURM_HOSTFILE\"\n");
    (void)l;
}

static void write_script(const launch *l, ty_text *text)
{
    bool is_arbitrary = !l->is_blocked || l->per_host == 0;

    ty_text_add(text, "#!/bin/bash\n");
    ty_launch_comments(l, "# ", text);
    ty_launch_write_directives(l, l->per_host, text);
    ty_text_add(text, "# TRAINYARD_MPI: what `srun --mpi=list` offers and trainyard-worker's MPI "
                      "understands.\n"
                      "set -eu\n"
                      "cd \"$SLURM_SUBMIT_DIR\"\n");
    ty_launch_export_environment(l, text);
    ty_text_add(text, "# Ranks refuse who does not prove to have this.\n" LAUNCH_SECRET);
    if (is_arbitrary)
        write_host_file(l, text);
    ty_text_addf(text,
                 "srun --mpi=\"${TRAINYARD_MPI:-pmix}\" --ntasks=%u --distribution=%s "
                 "--cpu-bind=none \\\n"
                 "    %s\"${TRAINYARD_WORKER:-trainyard-worker}\" job.json\n",
                 l->process_count, is_arbitrary ? "arbitrary" : "block",
                 l->has_accelerators ? "./rank.sh " : "");
}

ty_status ty_launch_slurm(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text script = {0};

    TY_CHECK(ty_launch_add_ranks(l, error), status, cleanup);
    if (l->has_accelerators)
        TY_CHECK(ty_launch_add_rank_script(l, error), status, cleanup);
    TY_CHECK(ty_launch_add_job(l, error), status, cleanup);
    write_script(l, &script);
    TY_CHECK(ty_launch_add(l, "job.sbatch", &script, true, error), status, cleanup);
    status = ty_launch_next(l, error, "sbatch job.sbatch");

cleanup:
    ty_text_clear(&script);
    return status;
}
