/* Open MPI: slots in the order of the hosts where the plan follows them, else the sequential
 * mapper, which puts each process where the plan has it. Options: mpirun(1) of Open MPI 4.1,
 * "Mapping, Ranking, and Binding". */
#include "launch.h"

static void write_script(const launch *l, ty_text *text)
{
    launch_variable variables[LAUNCH_MOST_VARIABLES];
    uint32_t count = ty_launch_environment(l, variables);

    ty_text_add(text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", text);
    ty_text_add(text,
                "# Every host needs this folder at the same path, and trainyard-worker in its "
                "PATH or\n# named by TRAINYARD_WORKER. More words go to mpirun.\n"
                "set -eu\n"
                "cd \"$(dirname \"$0\")\"\n");
    ty_launch_export_environment(l, text);
    ty_text_add(text, "# Ranks refuse who does not prove to have this.\n" LAUNCH_SECRET);
    ty_text_addf(text, "exec mpirun -n %u --hostfile hosts %s --bind-to none \\\n",
                 l->process_count, l->is_blocked ? "--map-by slot" : "--mca rmaps seq");
    for (uint32_t v = 0; v < count; v++)
        ty_text_addf(text, "    -x %s \\\n", variables[v].name);
    ty_text_add(text, "    -x " LAUNCH_SECRET_NAME " \\\n");
    ty_text_addf(text, "    \"$@\" %s\"${TRAINYARD_WORKER:-trainyard-worker}\" job.json\n",
                 l->has_accelerators ? "./rank.sh " : "");
}

/* A line per host with its slots, or for the sequential mapper one per process. */
static void write_hosts(const launch *l, ty_text *text)
{
    ty_launch_comments(l, "# ", text);
    for (uint32_t h = 0; l->is_blocked && h < l->host_count; h++)
        ty_text_addf(text, "%s slots=%u\n", l->hosts[h].name, l->hosts[h].process_count);
    for (uint32_t p = 0; !l->is_blocked && p < l->process_count; p++)
        ty_text_addf(text, "%s\n", l->hosts[l->processes[p].host].name);
}

ty_status ty_launch_mpirun(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text hosts = {0}, script = {0};

    write_hosts(l, &hosts);
    TY_CHECK(ty_launch_add(l, "hosts", &hosts, false, error), status, cleanup);
    TY_CHECK(ty_launch_add_ranks(l, error), status, cleanup);
    if (l->has_accelerators)
        TY_CHECK(ty_launch_add_rank_script(l, error), status, cleanup);
    TY_CHECK(ty_launch_add_job(l, error), status, cleanup);
    write_script(l, &script);
    TY_CHECK(ty_launch_add(l, "launch.sh", &script, true, error), status, cleanup);
    status = ty_launch_next(l, error, "./launch.sh");

cleanup:
    ty_text_clear(&script);
    return status;
}
