/* The table of targets, and what comes before each: placement, provenance. */
#include "launch.h"
#include "ty_quote.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct target {
    const char *name, *title;
    launch_target make;
    bool needs_job;
    bool is_per_host; /* its launch.sh is run once on every host */
    uint8_t bits;     /* of the narrowest products that its files can ask for */
} targets[] = {
    {"mpirun", "Open MPI: script, host list, job file", ty_launch_mpirun, true, false, 16},
    {"slurm", "Slurm: batch script and job file", ty_launch_slurm, true, false, 16},
    {"k8s-mpijob", "Kubernetes: MPIJob of Kubeflow's MPI operator", ty_launch_mpijob, true, false,
     16},
    {"k8s-pytorchjob", "Kubernetes: PyTorchJob of Kubeflow's training operator",
     ty_launch_pytorchjob, false, false, 8},
    {"torchrun", "PyTorch: script and settings for your training script", ty_launch_torchrun, false,
     true, 8},
    {"megatron", "Megatron-LM: arguments of pretrain_gpt.py", ty_launch_megatron, false, true, 4},
    {"deepspeed", "DeepSpeed: ds_config.json, host list, script", ty_launch_deepspeed, false, true,
     16},
    {"horovod", "Horovod: script and settings for your training script", ty_launch_horovod, false,
     false, 16},
    {"torchtitan", "torchtitan: its TOML and a script", ty_launch_torchtitan, false, true, 8},
    {"accelerate", "Accelerate: its YAML, settings and a script", ty_launch_accelerate, false, true,
     16},
    {"nccl-tuner", "NCCL: what it is to choose for every size", ty_launch_nccl, false, false, 16},
    {"chakra", "Chakra execution traces for simulators", ty_launch_chakra, false, false, 16},
};
#define TARGET_COUNT (sizeof targets / sizeof targets[0])

static const struct target *find(const char *name)
{
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

const char *ty_launch_target(uint32_t index, const char **title)
{
    if (index >= TARGET_COUNT)
        return NULL;
    if (title != NULL)
        *title = targets[index].title;
    return targets[index].name;
}

bool ty_launch_is_traces(const char *target)
{
    const struct target *t = find(target);
    return t != NULL && t->make == ty_launch_chakra;
}

bool ty_launch_needs_job(const char *target)
{
    const struct target *t = find(target);
    return t != NULL && t->needs_job;
}

static ty_status no_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory");
}

/* ---- Placement --------------------------------------------------------------------------- */

/* What scripts and host lists can carry without quotes. */
static bool is_plain_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '-')
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            return false;
    return true;
}

/* Numbers of the cluster's hosts among those in use, or UINT32_MAX. */
static void place_processes(launch *l, uint32_t *used)
{
    const ty_cluster *cluster = l->input->cluster;
    const uint32_t width = ty_plan_width(l->plan);

    for (uint32_t p = 0; p < l->process_count; p++) {
        launch_process *process = &l->processes[p];
        uint32_t device, host, first;
        process->rank = p / width;
        process->lane = p % width;
        device = ty_plan_device_of_process(l->plan, p);
        host = ty_cluster_device_host(cluster, device);
        for (first = device; first > 0 && ty_cluster_device_host(cluster, first - 1) == host;)
            first--;
        process->slot = device - first;
        if (used[host] == UINT32_MAX) {
            used[host] = l->host_count;
            l->hosts[l->host_count++].name = l->input->host_names != NULL
                                                 ? l->input->host_names[host]
                                                 : ty_cluster_host_name(cluster, host);
        }
        process->host = used[host];
        l->hosts[process->host].process_count++;
        l->has_accelerators |= !(ty_cluster_device_type(cluster, device)->core_share > 0);
    }
}

static void describe_placement(launch *l)
{
    l->is_blocked = true;
    l->per_host = l->hosts[0].process_count;
    l->first_slot = l->processes[0].slot;
    for (uint32_t p = 1; p < l->process_count; p++) {
        const launch_process *one = &l->processes[p - 1], *next = &l->processes[p];
        if (next->host == one->host) {
            l->is_blocked &= next->slot == one->slot + 1;
        } else {
            l->is_blocked &= next->host == one->host + 1;
            l->first_slot = next->slot == l->first_slot ? l->first_slot : UINT32_MAX;
        }
    }
    for (uint32_t h = 1; h < l->host_count; h++)
        l->per_host = l->hosts[h].process_count == l->per_host ? l->per_host : 0;
}

static ty_status check_devices(const launch *l, ty_error *error)
{
    const uint32_t devices = ty_cluster_device_count(l->input->cluster);

    for (uint32_t p = 0; p < l->process_count; p++)
        if (ty_plan_device_of_process(l->plan, p) >= devices)
            return ty_fail(
                error, TY_EINVAL, "the plan uses device %u, and cluster \"%.80s\" has %u",
                ty_plan_device_of_process(l->plan, p), ty_cluster_name(l->input->cluster), devices);
    return TY_OK;
}

static ty_status place(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t hosts = ty_cluster_host_count(l->input->cluster);
    uint32_t *used = ty_alloc(hosts, sizeof *used);

    l->process_count = ty_plan_launched_count(l->plan);
    l->processes = ty_alloc(l->process_count, sizeof *l->processes);
    l->hosts = ty_alloc(hosts, sizeof *l->hosts);
    if (used == NULL || l->processes == NULL || l->hosts == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    TY_CHECK(check_devices(l, error), status, cleanup);
    memset(used, 0xff, hosts * sizeof *used);
    place_processes(l, used);
    describe_placement(l);
    for (uint32_t h = 0; h < l->host_count; h++)
        if (!is_plain_name(l->hosts[h].name)) {
            status = ty_fail(error, TY_EINVAL,
                             "host name \"%.80s\": expected letters, digits, dots and hyphens; "
                             "give real names with --nodes",
                             l->hosts[h].name);
            goto cleanup;
        }

cleanup:
    ty_free(used);
    return status;
}

/* ---- Provenance -------------------------------------------------------------------------- */

/* A comment must stay on its line, whatever names are called. */
static void add_line(ty_text *text, const char *format, ...) TY_PRINTF(2, 3);
static void add_line(ty_text *text, const char *format, ...)
{
    char line[700];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ty_quote_visible(text, line, "");
    ty_text_add(text, "\n");
}

/* Whoever trains there exchanges gradients as it always does. */
static bool sends_rows_densely(const launch *l, const struct target *t)
{
    if (t->needs_job || t->make == ty_launch_chakra)
        return false;
    for (uint32_t b = 0; b < l->plan->bucket_count; b++)
        if (l->plan->buckets[b].compression.kind == TY_COMPRESSION_ROWS)
            return true;
    return false;
}

/* Whether the plan's figures are of software that the target does not start: of the worker, or of
 * a stack that is called as another target. */
static bool is_of_other_software(const ty_plan *plan, const struct target *t)
{
    const ty_stack *stack = plan->stack;

    if (stack == NULL || t->make == ty_launch_nccl || t->make == ty_launch_chakra)
        return false;
    if (t->needs_job || stack->memory == TY_MEMORY_WORKER)
        return t->needs_job != (stack->memory == TY_MEMORY_WORKER);
    for (size_t i = 0; i < TARGET_COUNT; i++) {
        const size_t length = strlen(targets[i].name);
        if (&targets[i] != t && strncmp(stack->name, targets[i].name, length) == 0 &&
            (stack->name[length] == '\0' || stack->name[length] == '-'))
            return true;
    }
    return false;
}

static ty_status write_comments(launch *l, const struct target *t, ty_error *error)
{
    const ty_plan *plan = l->plan;
    const ty_step_summary *s = ty_plan_summary(plan);
    ty_digest digest, cluster;
    char step[32], rate[32];
    ty_status status = ty_plan_digest(plan, &digest, error);

    if (status == TY_OK)
        status = ty_cluster_digest(plan->cluster, &cluster, error);
    if (status != TY_OK)
        return status;
    add_line(&l->comments, "%s: %.100s on %.200s, %.200s", t->title, plan->workload->name,
             plan->cluster_name, plan->strategy);
    add_line(&l->comments, "plan     %s", digest.hex);
    add_line(&l->comments, "cluster  %s", cluster.hex);
    add_line(&l->comments, "uses     %u processes on %u host%s; a step is %u micro-batches of %u",
             l->process_count, l->host_count, l->host_count > 1 ? "s" : "", plan->micro_batches,
             plan->micro_batch_size);
    if (is_of_other_software(plan, t))
        add_line(&l->comments,
                 "stack    the plan was made for %.100s; nothing is predicted of this software",
                 plan->stack->name);
    else if (plan->stack != NULL)
        add_line(&l->comments, "stack    %.100s: what is expected is of this software",
                 plan->stack->name);
    if (plan->has_prediction && !is_of_other_software(plan, t)) {
        ty_format_seconds(s->step_time_s, step);
        ty_format_count(s->samples_per_s, rate);
        add_line(&l->comments, "expects  %s a step, %s samples/s, limited by %.160s (%s, %s)", step,
                 rate, s->limited_by, s == &plan->simulation ? "simulated" : "estimated",
                 ty_provenance_name(plan->provenance));
    }
    if (sends_rows_densely(l, t))
        add_line(
            &l->comments,
            "differs  embeddings that the plan sends as rows travel densely here, as with --fix "
            "compression=none");
    if (l->input->command != NULL)
        add_line(&l->comments, "made by  %.500s", l->input->command);
    if (l->input->version != NULL)
        add_line(&l->comments, "version  Trainyard %.40s", l->input->version);
    return ty_text_check(&l->comments, error);
}

void ty_launch_comments(const launch *l, const char *sign, ty_text *text)
{
    for (const char *line = l->comments.data; line != NULL && *line != '\0';) {
        size_t length = strcspn(line, "\n");
        ty_text_add(text, sign);
        ty_text_append(text, line, length);
        ty_text_add(text, "\n");
        line += length + 1;
    }
}

/* Letters, digits and hyphens, a letter first. */
static void name_job(launch *l)
{
    size_t at = 0;

    if (!isalpha((unsigned char)l->plan->workload->name[0]))
        at = (size_t)snprintf(l->name, sizeof l->name, "train-");
    for (const char *c = l->plan->workload->name; *c != '\0' && at < 50; c++)
        l->name[at++] = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : (char)'-';
    while (at > 0 && l->name[at - 1] == '-')
        at--;
    l->name[at] = '\0';
}

/* ---- Files ------------------------------------------------------------------------------- */

ty_status ty_launch_add(launch *l, const char *name, ty_text *text, bool is_program,
                        ty_error *error)
{
    ty_status status = TY_OK;
    ty_launch_files *files = l->files;
    ty_launch_file file = {.is_program = is_program};
    ty_launch_file *grown;

    file.length = text->length;
    TY_CHECK(ty_text_take(text, &file.bytes, error), status, cleanup);
    file.name = ty_strdup(name);
    grown = ty_resize(files->files, files->count + 1, sizeof *grown);
    if (grown != NULL)
        files->files = grown;
    if (file.name == NULL || grown == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    grown[files->count++] = file;
    file = (ty_launch_file){0};

cleanup:
    ty_text_clear(text);
    ty_free(file.bytes);
    ty_free(file.name);
    return status;
}

ty_status ty_launch_next(launch *l, ty_error *error, const char *format, ...)
{
    char line[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    ty_free(l->files->next);
    l->files->next = ty_strdup(line);
    return l->files->next != NULL ? TY_OK : no_memory(error);
}

void ty_launch_free(ty_launch_files *files)
{
    if (files == NULL)
        return;
    for (uint32_t i = 0; i < files->count; i++) {
        ty_free(files->files[i].name);
        ty_free(files->files[i].bytes);
    }
    ty_free(files->files);
    ty_free(files->next);
    ty_free(files);
}

ty_status ty_launch_refuse(ty_error *error, const char *target, const char *format, ...)
{
    char reason[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return ty_fail(error, TY_EUNSUPPORTED, "--to %s: %s", target, reason);
}

/* ---- The whole --------------------------------------------------------------------------- */

static ty_status unknown_target(const char *name, ty_error *error)
{
    const char *close = ty_suggest(name, targets, TARGET_COUNT, sizeof targets[0]);
    ty_text known = {0};
    ty_status status;

    for (size_t i = 0; i < TARGET_COUNT; i++)
        ty_text_addf(&known, "%s%s", i > 0 ? ", " : "", targets[i].name);
    status = ty_fail(error, TY_EINVAL, "--to: found '%.40s', expected %s%s%s%s", name,
                     known.data != NULL ? known.data : "", close != NULL ? "; did you mean " : "",
                     close != NULL ? close : "", close != NULL ? "?" : "");
    ty_text_clear(&known);
    return status;
}

/* Products in 8 and 4 bits are asked for by a framework's own options, which not all have. */
static ty_status narrow_check(const ty_plan *plan, const struct target *t, ty_error *error)
{
    const ty_precision precision = plan->workload->precision;
    const uint8_t bits = precision == TY_PRECISION_FP4 ? 4 : 8;
    ty_text others = {0};
    ty_status status;

    if (!ty_precision_is_narrow(precision) || t->bits <= bits)
        return TY_OK;
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (targets[i].bits <= bits)
            ty_text_addf(&others, "%s%s", others.length > 0 ? ", " : "", targets[i].name);
    status = ty_launch_refuse(error, t->name,
                              "found a plan in %s, which only --to %s can say; plan with "
                              "--precision bf16",
                              ty_precision_name(precision),
                              others.data != NULL ? others.data : "megatron");
    ty_text_clear(&others);
    return status;
}

ty_status ty_launch(const char *target, const ty_launch_input *input, ty_launch_files **out,
                    ty_error *error)
{
    ty_status status = TY_OK;
    const struct target *t = find(target);
    launch l = {.input = input, .plan = input->plan};

    if (t == NULL)
        return unknown_target(target, error);
    if (t->needs_job && input->job == NULL)
        return ty_fail(error, TY_EINVAL, "--to %s needs a job", target);
    if (input->on != NULL && !t->is_per_host)
        return ty_fail(
            error, TY_EINVAL,
            "--on %.40s: found --to %s, expected a target whose launch.sh is run once on "
            "every host, such as torchrun or megatron",
            input->on, target);
    if (l.plan->servers.count > 0 && !t->needs_job)
        return ty_launch_refuse(error, target,
                                "it has no servers of gradients, and the plan has %u; plan with "
                                "--fix servers=0, or export to mpirun, slurm or k8s-mpijob",
                                l.plan->servers.count);
    l.files = ty_alloc(1, sizeof *l.files);
    if (l.files == NULL)
        return no_memory(error);
    TY_CHECK(ty_launch_next(&l, error, "%s", ""), status, cleanup);
    TY_CHECK(place(&l, error), status, cleanup);
    l.precision = ty_launch_precision(l.plan, input->cluster);
    l.has_tf32 = strcmp(l.precision, "tf32") == 0;
    if (l.has_tf32)
        l.precision = "fp32";
    TY_CHECK(narrow_check(l.plan, t, error), status, cleanup);
    name_job(&l);
    TY_CHECK(write_comments(&l, t, error), status, cleanup);
    TY_CHECK(t->make(&l, error), status, cleanup);
    if (input->on != NULL)
        TY_CHECK(ty_launch_put_on(&l, error), status, cleanup);
    *out = l.files;
    l.files = NULL;

cleanup:
    ty_launch_free(l.files);
    ty_text_clear(&l.comments);
    ty_free(l.processes);
    ty_free(l.hosts);
    return status;
}
