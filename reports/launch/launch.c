/* The tables of targets and places, and the steps from a plan to a target's files: values,
 * refusals, templates. */
#include "launch.h"
#include "ty_base.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- The tables -------------------------------------------------------------------------- */

/* Names of rules in templates/refusals.in, in the order of the checks. */
#define DATA_PARALLEL "learning torch-optimizer pipelines divided-layers late priority local-steps "
#define BLOCKS "compression fp8-blocks segments placed "

/* Files are templates. An empty result is left out, and one that begins with "#!" is a program. */
typedef struct launch_target {
    const char *name, *title;
    const char *files;   /* in order */
    const char *next;    /* a template: the command to type */
    const char *refuses; /* rules of templates/refusals.in */
    const char
        *framework; /* library in whose terms trainyard_plan.py has settings; NULL: PyTorch */
    ty_status (*make)(launch *l, ty_error *error); /* makes content that no template can express;
                                                      the target starts nothing */
    bool needs_job;
    bool is_per_host; /* launch.sh runs once per host */
    bool is_pod;      /* needs an image */
    uint8_t bits;     /* bits of the narrowest products that its files can request; 0: 16 */
} launch_target;

#define NUMBERED                                                                                   \
    "{{#if many_hosts}}NODE_RANK=0 ./launch.sh   # on each host its number{{/if}}"                 \
    "{{#if !many_hosts}}./launch.sh{{/if}}"

static const launch_target targets[] = {
    {.name = "mpirun",
     .title = "Open MPI: script, host list, job file",
     .files = "hosts ranks.txt rank.sh job.json launch.sh",
     .next = "./launch.sh",
     .needs_job = true},
    {.name = "slurm",
     .title = "Slurm: batch script and job file",
     .files = "ranks.txt rank.sh job.json job.sbatch",
     .next = "sbatch job.sbatch",
     .needs_job = true},
    {.name = "k8s-mpijob",
     .title = "Kubernetes: MPIJob of Kubeflow's MPI operator",
     .files = "mpijob.yaml job.json",
     .next = "kubectl apply -f mpijob.yaml",
     .refuses = "placed nvidia output-checkpoint",
     .needs_job = true,
     .is_pod = true},
    {.name = "k8s-pytorchjob",
     .title = "Kubernetes: PyTorchJob of Kubeflow's training operator",
     .files = "pytorchjob.yaml",
     .next = "kubectl apply -f pytorchjob.yaml",
     .refuses = DATA_PARALLEL BLOCKS "nvidia pod-checkpoint",
     .is_pod = true,
     .bits = 8},
    {.name = "torchrun",
     .title = "PyTorch: script and settings for your training script",
     .files = "trainyard_plan.py launch.sh",
     .next = NUMBERED,
     .refuses = DATA_PARALLEL BLOCKS,
     .is_per_host = true,
     .bits = 8},
    {.name = "megatron",
     .title = "Megatron-LM: arguments of pretrain_gpt.py",
     .files = "megatron.args launch.sh",
     .next = "MEGATRON=/path/to/Megatron-LM ./launch.sh --data-path ...",
     .refuses =
         "megatron-model megatron-optimizer megatron-schedule megatron-stages megatron-groups "
         "megatron-operator every-step late-at-all priority megatron-zero uncompressed "
         "megatron-divisible megatron-elementwise megatron-blocks placed megatron-fp16 "
         "megatron-pattern megatron-segments",
     .is_per_host = true,
     .bits = 4},
    {.name = "deepspeed",
     .title = "DeepSpeed: ds_config.json, host list, script",
     .files = "ds_config.json trainyard_plan.py hostfile launch.sh",
     .next = "./launch.sh",
     .refuses = DATA_PARALLEL BLOCKS,
     .framework = "deepspeed",
     .is_per_host = true},
    {.name = "horovod",
     .title = "Horovod: script and settings for your training script",
     .files = "trainyard_plan.py launch.sh",
     .next = "./launch.sh",
     .refuses = DATA_PARALLEL "zero " BLOCKS "half-gradients",
     .framework = "horovod"},
    {.name = "torchtitan",
     .title = "torchtitan: its TOML and a script",
     .files = "torchtitan.toml launch.sh",
     .next = "TORCHTITAN=/path/to/torchtitan ./launch.sh",
     .refuses = "titan-model titan-schedule titan-stages every-step titan-late priority "
                "titan-zero titan-sp titan-ep titan-optimizer titan-recompute uncompressed placed "
                "titan-fp16 titan-split",
     .is_per_host = true,
     .bits = 8},
    {.name = "accelerate",
     .title = "Accelerate: its YAML, settings and a script",
     .files = "accelerate.yaml trainyard_plan.py launch.sh",
     .next = NUMBERED,
     .refuses = DATA_PARALLEL BLOCKS "accelerate-zero accelerate-recompute whole-gradients",
     .framework = "accelerate",
     .is_per_host = true},
    {.name = "nccl-tuner",
     .title = "NCCL: what it is to choose for every size",
     .files = "nccl_tuner.conf nccl.sh",
     .next = ". ./nccl.sh",
     .refuses = "gpus",
     .make = ty_launch_nccl},
    {.name = "chakra",
     .title = "Chakra execution traces for simulators",
     .refuses = "one-step",
     .make = ty_launch_chakra},
};
#define TARGET_COUNT (sizeof targets / sizeof targets[0])

/* Launchers of a launch.sh on every host: they set each host's number and the rendezvous. */
static const launch_target places[] = {
    {.name = "slurm", .files = "job.sbatch", .next = "sbatch job.sbatch"},
    {.name = "k8s-jobset",
     .files = "jobset.yaml",
     .next = "kubectl apply -f jobset.yaml",
     .refuses = "nvidia size pod-checkpoint",
     .is_pod = true},
    {.name = "k8s-trainjob", /* of Kubeflow's Trainer */
     .files = "trainjob.yaml",
     .next = "kubectl apply -f trainjob.yaml",
     .refuses = "nvidia size pod-checkpoint",
     .is_pod = true},
    {.name = "skypilot",
     .files = "task.yaml",
     .next = "sky {{#if checkpoint}}jobs {{/if}}launch task.yaml",
     .refuses = "sky pod-checkpoint"},
};
#define PLACE_COUNT (sizeof places / sizeof places[0])

static const launch_target *find(const char *name, const launch_target *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
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

bool ty_launch_is_traces(const char *name)
{
    const launch_target *t = find(name, targets, TARGET_COUNT);
    return t != NULL && t->make == ty_launch_chakra;
}

bool ty_launch_needs_job(const char *name)
{
    const launch_target *t = find(name, targets, TARGET_COUNT);
    return t != NULL && t->needs_job;
}

static ty_status unknown(const char *option, const char *name, const launch_target *table,
                         size_t count, ty_error *error)
{
    const char *close = ty_suggest(name, table, count, sizeof table[0]);
    ty_text known = {0};
    ty_status status;

    for (size_t i = 0; i < count; i++)
        ty_text_addf(&known, "%s%s", i > 0 ? ", " : "", table[i].name);
    status = ty_fail(error, TY_EINVAL, "%s: found '%.40s', expected %s%s%s%s", option, name,
                     known.data != NULL ? known.data : "", close != NULL ? "; did you mean " : "",
                     close != NULL ? close : "", close != NULL ? "?" : "");
    ty_text_clear(&known);
    return status;
}

/* ---- Provenance -------------------------------------------------------------------------- */

/* Whether the target's framework all-reduces rows of embeddings as dense gradients. */
static bool sends_rows_densely(const launch *l, const launch_target *t)
{
    if (t->needs_job || t->make == ty_launch_chakra)
        return false;
    for (uint32_t b = 0; b < l->plan->bucket_count; b++)
        if (ty_compression_at(l->plan->buckets[b].compression.kind)->sends_rows)
            return true;
    return false;
}

/* Whether the plan's figures are of another framework than the target's: of the worker, or of a
 * stack named like another target. */
static bool is_of_other_software(const ty_plan *plan, const launch_target *t)
{
    const ty_stack *stack = plan->stack;

    if (stack == NULL || t->make != NULL)
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

/* Adds the values of the comments at the begin of files, and of the target itself. */
static ty_status put_target(launch *l, const launch_target *t, ty_error *error)
{
    const ty_plan *plan = l->plan;
    const ty_step_summary *s = ty_plan_summary(plan);
    const bool is_other = is_of_other_software(plan, t);
    launch_values *v = &l->values;
    ty_digest digest = {0}, cluster = {0};
    char step[32], rate[32];
    ty_status status = ty_plan_digest(plan, &digest, error);

    if (status == TY_OK)
        status = ty_cluster_digest(plan->cluster, &cluster, error);
    ty_launch_put_text(v, "framework", t->framework != NULL ? t->framework : "pytorch");
    ty_launch_put_flag(v, "worker", t->needs_job);
    ty_launch_put_text(v, "on", l->input->on);
    ty_launch_put_flag(v, "requeue",
                       strcmp(t->name, "slurm") == 0 ||
                           (l->input->on != NULL && strcmp(l->input->on, "slurm") == 0));
    ty_launch_put_text(v, "title", t->title);
    ty_launch_put_name(v, "model", plan->workload->name, 100);
    ty_launch_put_name(v, "cluster", plan->cluster_name, 200);
    ty_launch_put_name(v, "strategy", plan->strategy, 200);
    ty_launch_put_text(v, "plan_digest", digest.hex);
    ty_launch_put_text(v, "cluster_digest", cluster.hex);
    if (plan->stack != NULL)
        ty_launch_put_name(v, is_other ? "other_stack" : "stack", plan->stack->name, 100);
    if (plan->has_prediction && !is_other) {
        ty_format_seconds(s->step_time_s, step);
        ty_format_count(s->samples_per_s, rate);
        ty_launch_put_text(v, "step_time", step);
        ty_launch_put_text(v, "samples_rate", rate);
        ty_launch_put_name(v, "limited_by", s->limited_by, 160);
        ty_launch_put_text(v, "engine", s == &plan->simulation ? "simulated" : "estimated");
        ty_launch_put_text(v, "provenance", ty_provenance_name(plan->provenance));
    }
    ty_launch_put_flag(v, "dense_rows", sends_rows_densely(l, t));
    if (l->input->command != NULL)
        ty_launch_put_name(v, "command", l->input->command, 500);
    if (l->input->version != NULL)
        ty_launch_put_name(v, "version", l->input->version, 40);
    return status;
}

/* Makes a name of letters, digits and hyphens that begins with a letter. */
static void put_job_name(launch *l)
{
    char name[64]; /* a DNS label of RFC 1123 */
    size_t at = 0;

    if (!isalpha((unsigned char)l->plan->workload->name[0]))
        at = (size_t)snprintf(name, sizeof name, "train-");
    for (const char *c = l->plan->workload->name; *c != '\0' && at < 50; c++)
        name[at++] = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : (char)'-';
    while (at > 0 && name[at - 1] == '-')
        at--;
    name[at] = '\0';
    ty_launch_put_text(&l->values, "name", name);
}

/* ---- Files ------------------------------------------------------------------------------- */

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

/* ---- Refusals ---------------------------------------------------------------------------- */

/* Finds the first rule of a target with a reason: "name: reason"; an empty reason is no refusal. */
static ty_status check_rules(const launch *l, const launch_target *t, ty_error *error)
{
    ty_text rules = {0};
    char rule[64];
    int length = 0;
    ty_status status = ty_launch_render(t->name, "refusals", &l->values, &rules, error);

    for (const char *at = t->refuses;
         status == TY_OK && at != NULL && sscanf(at, "%60s%n", rule, &length) == 1; at += length) {
        const size_t size = strlen(rule);
        bool is_known = false;
        for (const char *line = rules.data; *line != '\0' && status == TY_OK;) {
            const size_t line_length = strcspn(line, "\n");
            const bool is_it = strncmp(line, rule, size) == 0 && line[size] == ':';
            if (is_it && line_length > size + 1)
                status = ty_launch_refuse(error, t->name, "%.*s", (int)(line_length - size - 2),
                                          line + size + 2);
            is_known |= is_it;
            line += line_length + (line[line_length] == '\n');
        }
        if (!is_known)
            status = ty_fail(error, TY_EINVAL, "--to %s: refusals.in has no %s", t->name, rule);
    }
    ty_text_clear(&rules);
    return status;
}

/* Checks a resource name: a domain, a slash, a name (Kubernetes, "Extended resources"). */
static bool is_resource(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash != NULL && slash > name && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
               strlen(name);
}

static ty_status check_pod(const launch *l, const launch_target *t, ty_error *error)
{
    const char *image = l->input->image, *rdma = l->input->rdma;

    if (rdma != NULL && strcmp(rdma, "none") != 0 && !is_resource(rdma))
        return ty_fail(error, TY_EINVAL,
                       "--rdma: found '%.80s', expected a resource of Kubernetes, such as "
                       "rdma/rdma_shared_device_a, or none",
                       rdma);
    if (image == NULL && l->input->version == NULL)
        return ty_fail(error, TY_EINVAL, "--to %s needs an image", t->name);
    if (image != NULL && (image[0] == '\0' || !ty_is_printable(image) ||
                          strpbrk(image, " \t\r\n#'\"{}[],&*") != NULL))
        return ty_fail(error, TY_EINVAL, "--image: found '%.80s', expected the name of an image",
                       image);
    return TY_OK;
}

static uint8_t bits_of(const launch_target *t)
{
    return t->bits > 0 ? t->bits : 16;
}

/* Refuses products in 8 and 4 bits if the framework has no options for them. */
static ty_status narrow_check(const ty_plan *plan, const launch_target *t, ty_error *error)
{
    const ty_precision precision = plan->workload->precision;
    const uint8_t bits = precision == TY_PRECISION_FP4 ? 4 : 8;
    ty_text others = {0};
    ty_status status;

    if (!ty_precision_is_narrow(precision) || bits_of(t) <= bits)
        return TY_OK;
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (bits_of(&targets[i]) <= bits)
            ty_text_addf(&others, "%s%s", others.length > 0 ? ", " : "", targets[i].name);
    status = ty_launch_refuse(error, t->name,
                              "found a plan in %s, which only --to %s can say; plan with "
                              "--precision bf16",
                              ty_precision_name(precision),
                              others.data != NULL ? others.data : "megatron");
    ty_text_clear(&others);
    return status;
}

/* ---- Making files ------------------------------------------------------------------------ */

/* Checks a plan against a target or a place, and adds its files. */
static ty_status add_files(launch *l, const launch_target *t, const char *owner, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    char name[64];
    int length = 0;

    TY_CHECK(check_rules(l, t, error), status, cleanup);
    if (t->is_pod)
        TY_CHECK(check_pod(l, t, error), status, cleanup);
    if (t->make != NULL)
        TY_CHECK(t->make(l, error), status, cleanup);
    for (const char *at = t->files; at != NULL && sscanf(at, "%60s%n", name, &length) == 1;
         at += length) {
        TY_CHECK(ty_launch_render(owner, name, &l->values, &text, error), status, cleanup);
        if (text.length > 0)
            TY_CHECK(ty_launch_add(l, name, &text, error), status, cleanup);
    }
    TY_CHECK(ty_launch_render_text(t->next != NULL ? t->next : "", &l->values, &text, error),
             status, cleanup);
    ty_free(l->files->next);
    status = ty_text_take(&text, &l->files->next, error);

cleanup:
    ty_text_clear(&text);
    return status;
}

/* Wraps launch.sh for the launcher input->on. */
static ty_status put_on(launch *l, ty_error *error)
{
    const launch_target *place = find(l->input->on, places, PLACE_COUNT);
    size_t bytes = 0;
    char owner[80];

    if (place == NULL)
        return unknown("--on", l->input->on, places, PLACE_COUNT, error);
    for (uint32_t f = 0; f < l->files->count; f++) {
        launch_values *row = ty_launch_put_row(&l->values, "files");
        ty_launch_put_text(row, "file", l->files->files[f].name);
        ty_launch_put_text(row, "bytes", l->files->files[f].bytes);
        bytes += l->files->files[f].length;
    }
    ty_launch_put_flag(&l->values, "large_files", bytes > LAUNCH_LARGEST_CONFIG_BYTES);
    ty_launch_put_uint(&l->values, "files_bytes", bytes);
    snprintf(owner, sizeof owner, "on-%s", place->name);
    return add_files(l, place, owner, error);
}

ty_status ty_launch(const char *name, const ty_launch_input *input, ty_launch_files **out,
                    ty_error *error)
{
    ty_status status = TY_OK;
    const launch_target *t = find(name, targets, TARGET_COUNT);
    launch l = {.input = input, .plan = input->plan};

    if (t == NULL)
        return unknown("--to", name, targets, TARGET_COUNT, error);
    if (t->needs_job && input->job == NULL)
        return ty_fail(error, TY_EINVAL, "--to %s needs a job", name);
    if (input->on != NULL && !t->is_per_host)
        return ty_fail(
            error, TY_EINVAL,
            "--on %.40s: found --to %s, expected a target whose launch.sh is run once on "
            "every host, such as torchrun or megatron",
            input->on, name);
    if (input->checkpoint != NULL && t->make != NULL)
        return ty_fail(error, TY_EINVAL,
                       "--checkpoint: found with --to %s, which starts nothing, expected another "
                       "target",
                       name);
    if (l.plan->servers.count > 0 && !t->needs_job)
        return ty_launch_refuse(error, name,
                                "it has no servers of gradients, and the plan has %u; plan with "
                                "--fix servers=0, or export to mpirun, slurm or k8s-mpijob",
                                l.plan->servers.count);
    l.files = ty_alloc(1, sizeof *l.files);
    TY_TRY(ty_check_memory(l.files != NULL, error));
    TY_CHECK(ty_launch_place(&l, error), status, cleanup);
    l.precision = ty_launch_precision(l.plan, input->cluster);
    if (strcmp(l.precision, "tf32") == 0)
        l.precision = "fp32";
    TY_CHECK(narrow_check(l.plan, t, error), status, cleanup);
    TY_CHECK(put_target(&l, t, error), status, cleanup);
    put_job_name(&l);
    ty_launch_put_megatron(&l);
    TY_CHECK(ty_launch_put_plan(&l, error), status, cleanup);
    TY_CHECK(add_files(&l, t, t->name, error), status, cleanup);
    if (input->on != NULL)
        TY_CHECK(put_on(&l, error), status, cleanup);
    *out = l.files;
    l.files = NULL;

cleanup:
    ty_launch_free(l.files);
    ty_launch_values_clear(&l.values);
    ty_free(l.ranks);
    ty_free(l.hosts);
    return status;
}
