/* Plans, summaries, memory, runs and comparisons as text for a terminal. */
#include "print.h"
#include "busy.h"
#include "operation.h"
#include "ty_reports.h"
#include "wrap.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOTABLE_SHIFT 0.03 /* expected times nearer to the step time are not printed */

void ty_print_fact(ty_text *text, const char *label, const char *format, ...)
{
    char value[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    ty_wrap_cell(text, LABEL_COLUMNS, label);
    ty_wrap_add(text, LABEL_COLUMNS, LABEL_COLUMNS, value);
}

const ty_stack_judged *ty_plan_judged(const ty_plan *plan, const ty_cluster *cluster)
{
    if (cluster == NULL || plan->stack == NULL || plan->workload->tokens_per_sample == 0)
        return NULL;
    return ty_stack_judged_on(plan->stack, ty_cluster_device_type(cluster, 0)->name);
}

/* Names an 8- or 4-bit rate that no measurement on this device supports. */
static void print_unsupported(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    const ty_precision precision = plan->workload->precision;
    const ty_device_type *device = cluster != NULL && plan->stack != NULL && plan->profile == NULL
                                       ? ty_cluster_device_type(cluster, 0)
                                       : NULL;
    const bool is_fp8 = precision == TY_PRECISION_FP8;

    if (device == NULL || !(is_fp8 ? device->is_fp8_estimate
                                   : precision == TY_PRECISION_FP4 && device->is_fp4_estimate))
        return;
    if (ty_stack_on_device(plan->stack, is_fp8 ? &plan->stack->fp8_share : &plan->stack->fp4_share,
                           device->name, NULL) < 0)
        ty_text_addf(text, "; no measurement supports the rate in %s on %s, which is an estimate",
                     ty_precision_name(precision), device->name);
}

/* Source of the measured share of the device's peak; NULL: not measured. */
static const char *rates_source(const ty_plan *plan, const ty_cluster *cluster)
{
    const ty_stack *stack = plan->stack;
    const ty_device_type *device = cluster != NULL ? ty_cluster_device_type(cluster, 0) : NULL;
    double share;

    if (stack == NULL || device == NULL || stack->provenance != TY_MEASURED)
        return NULL;
    share = ty_stack_on_device(stack, &stack->product_share, device->name, device->generation);
    for (uint32_t o = 0; o < stack->on_count; o++)
        if (stack->on[o].sources[0] != NULL && stack->on[o].values[0] == share)
            return stack->on[o].sources[0];
    return NULL;
}

void ty_print_certainty(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    const char *device = cluster == NULL ? "" : ty_cluster_device_type(cluster, 0)->name;
    const ty_stack_judged *judged = ty_plan_judged(plan, cluster);
    const bool is_of_tokens = plan->workload->tokens_per_sample > 0;
    const char *source = rates_source(plan, cluster);

    if (plan->profile != NULL && plan->profile->scaled != NULL)
        ty_text_addf(text, "layer times measured on another device (%s), scaled to %s%s",
                     plan->profile->scaled, device,
                     plan->provenance == TY_DATASHEET ? "; the rest from data sheets" : "");
    else if (plan->provenance == TY_MEASURED)
        ty_text_add(text, "measured on this hardware");
    else if (ty_workload_has_times(plan->workload))
        ty_text_addf(text, "layer times of the workload's file, the rest from data sheets: %s",
                     plan->workload->source);
    else if (judged != NULL)
        ty_text_addf(text, "calibrated; mean error %.2g %% on %u held-out %s run%s",
                     100 * judged->mean_error, judged->rows, judged->device,
                     judged->rows == 1 ? "" : "s");
    else if (cluster != NULL && plan->stack != NULL && plan->stack->fitted_count > 0)
        ty_text_addf(text, "calibrated; no held-out runs %s%s, expect an error of tens of percent",
                     is_of_tokens ? "on " : "of such models", is_of_tokens ? device : "");
    else if (plan->provenance == TY_CALIBRATED)
        ty_text_add(text, "calibrated from published curves");
    else if (source != NULL)
        ty_text_addf(text, "rates %.*s; the rest from data sheets", (int)strcspn(source, ":"),
                     source);
    else
        ty_text_add(text, "data sheets and a roofline; expect an error of tens of percent");
    print_unsupported(plan, cluster, text);
}

/* "59.9k" */
static void compact_count(double value, char out[32])
{
    char *space;

    ty_format_count(value, out);
    space = strchr(out, ' ');
    if (space != NULL)
        memmove(space, space + 1, strlen(space));
}

static bool has_same_unit(const char *figure, const char *other)
{
    const char *unit = strchr(other, ' '), *own = strchr(figure, ' ');

    return unit != NULL && own != NULL && strcmp(unit, own) == 0;
}

/* Writes " (80 %: 2.9 to 3.7)", after the expected time if it differs from the step time. */
static void add_interval(const ty_step_interval *interval, double step_s, ty_text *line)
{
    char step[32], low[32], high[32], expected[32];

    ty_format_seconds(step_s, step);
    ty_format_seconds(interval->low_s, low);
    ty_format_seconds(interval->high_s, high);
    if (has_same_unit(low, step) && has_same_unit(high, step))
        *strchr(low, ' ') = *strchr(high, ' ') = '\0';
    if (fabs(interval->expected_s / step_s - 1) > NOTABLE_SHIFT) {
        ty_format_seconds(interval->expected_s, expected);
        ty_text_addf(line, ", expected %s", expected);
    }
    ty_text_addf(line, " (%.0f %%: %s to %s)", 100 * interval->coverage, low, high);
}

void ty_print_nearest(const ty_plan *plan, ty_text *text)
{
    const ty_nearest_run *run = &plan->nearest[0];
    char step[32], rate[32];
    ty_text each = {0};

    if (plan->nearest_count == 0)
        return;
    ty_format_seconds(run->step_s, step);
    if (run->tokens_per_s > 0) {
        compact_count(run->tokens_per_s / run->devices, rate);
        ty_text_addf(&each, ", %s tokens/s per device", rate);
    }
    ty_print_fact(text, "Nearest", "measured: %s on %u %s, %s, %s: %s per step%s (%s)", run->model,
                  run->devices, run->device, run->precision, run->framework, step,
                  each.data != NULL ? each.data : "", run->source);
    ty_text_clear(&each);
}

void ty_print_summary(const ty_step_summary *s, const ty_step_interval *interval, const char *noun,
                      ty_text *text)
{
    const bool has_tokens = s->tokens_per_s > 0;
    const double rate = has_tokens ? s->tokens_per_s : s->samples_per_s;
    const char *unit = has_tokens ? "tokens/s" : "samples/s";
    char time[32], all[32], each[32];
    ty_text line = {0};

    ty_format_seconds(s->step_time_s, time);
    ty_text_add(&line, time);
    if (interval != NULL && interval->coverage > 0)
        add_interval(interval, s->step_time_s, &line);
    ty_print_fact(text, "Step time", "%s", line.data != NULL ? line.data : "");
    ty_text_clear(&line);
    compact_count(rate, all);
    ty_text_addf(&line, "%s %s", all, unit);
    if (noun != NULL && s->devices > 0) {
        compact_count(rate / s->devices, each);
        ty_text_addf(&line, ", %s %s/%s", each, unit, noun);
    }
    ty_print_fact(text, "Throughput", "%s", line.data != NULL ? line.data : "");
    ty_text_clear(&line);
    if (s->tflops_per_device > 0 && noun != NULL) {
        if (s->mfu > 0)
            ty_text_addf(&line, "%.1f %% MFU, ", 100 * s->mfu);
        ty_text_addf(&line, "%.3g TFLOP/s/%s", s->tflops_per_device, noun);
        ty_print_fact(text, "Efficiency", "%s", line.data != NULL ? line.data : "");
        ty_text_clear(&line);
    }
    ty_text_addf(&line, "compute %.1f %%, pipeline bubble %.1f %%, exposed communication %.1f %%",
                 100 * s->compute_share, 100 * s->bubble_share,
                 100 * (s->exposed_collective_share + s->exposed_transfer_share));
    if (s->input_share >= 0.0005)
        ty_text_addf(&line, ", input %.1f %%", 100 * s->input_share);
    ty_print_fact(text, "Time", "%s", line.data != NULL ? line.data : "");
    ty_text_clear(&line);
    ty_print_fact(text, "Bottleneck", "%s", s->limited_by);
}

void ty_print_stack_name(const ty_stack *stack, ty_text *text)
{
    ty_print_fact(text, "Framework", "%s (%s)%s%s", stack->name, stack->title,
                  stack->why != NULL ? ", because " : "", stack->why != NULL ? stack->why : "");
}

#define CONSTANT_COLUMNS 26 /* "network_group_bytes_per_s " */
#define VALUE_COLUMNS 12

void ty_print_stack(const ty_stack *stack, ty_text *text)
{
    static const char *const attention[] = {
        [TY_ATTENTION_OF_WORKLOAD] = "as each layer of the workload says",
        [TY_ATTENTION_SCORES] = "scores go through memory and are kept",
        [TY_ATTENTION_FUSED] = "fused: scores are never kept",
    };
    static const char *const memory[] = {
        [TY_MEMORY_WORKER] = "what trainyard-worker allocates",
        [TY_MEMORY_AUTOGRAD] = "what automatic differentiation keeps",
    };
    const ty_stack_constant *constant;
    ty_text plans = {0};

    ty_print_stack_name(stack, text);
    ty_print_fact(text, "source", "%s", stack->source);
    ty_print_fact(text, "provenance", "%s", ty_provenance_name(stack->provenance));
    ty_print_fact(text, "attention", "%s%s", attention[stack->attention],
                  stack->has_dropout ? "; dropout" : "");
    ty_print_fact(text, "memory", "%s", memory[stack->memory]);
    ty_print_fact(text, "gradients", "%s",
                  stack->overlaps_exchange ? "leave during backward"
                                           : "leave after the last backward");
    ty_stack_plans_text(&stack->plans, &plans);
    ty_print_fact(text, "plans", "%s", plans.data != NULL ? plans.data : "");
    ty_text_clear(&plans);
    for (uint32_t i = 0; i < stack->fitted_count; i++)
        ty_print_fact(text, i == 0 ? "fitted to" : "", "%s: %s", stack->fitted[i].source,
                      stack->fitted[i].model != NULL ? stack->fitted[i].model : "all of it");
    for (uint32_t i = 0; i < stack->switch_count; i++)
        ty_print_fact(text, i == 0 ? "switches" : "", "%s sets %s", stack->switches[i].name,
                      stack->switches[i].words);
    ty_text_addf(text, "\n%-*s %*s  %s\n", CONSTANT_COLUMNS, "constant", VALUE_COLUMNS, "value",
                 "source");
    for (uint32_t i = 0; (constant = ty_stack_constant_at(i)) != NULL; i++) {
        char value[32];
        double number;
        memcpy(&number, (const char *)stack + constant->offset, sizeof number);
        ty_format_number(number, value);
        ty_text_addf(text, "%-*s %*s", CONSTANT_COLUMNS, constant->key, VALUE_COLUMNS,
                     number == TY_OF_DEVICE ? "device" : value);
        if (stack->sources[i] == NULL) {
            ty_text_add(text, "\n");
            continue;
        }
        ty_text_add(text, "  ");
        ty_wrap_add(text, CONSTANT_COLUMNS + VALUE_COLUMNS + 3,
                    CONSTANT_COLUMNS + VALUE_COLUMNS + 3, stack->sources[i]);
    }
}

/* Writes "0..7" for consecutive devices, else a list. */
static void devices_text(const ty_plan *plan, const ty_plan_stage *stage, ty_text *text)
{
    const uint32_t count = stage->replicas * ty_plan_replica_ranks(plan);
    bool is_range = count > 1;

    for (uint32_t r = 1; r < count; r++)
        is_range = is_range && stage->devices[r] == stage->devices[r - 1] + 1;
    if (is_range)
        ty_text_addf(text, "%u..%u", stage->devices[0], stage->devices[count - 1]);
    for (uint32_t r = 0; !is_range && r < count; r++)
        ty_text_addf(text, "%s%u", r > 0 ? "," : "", stage->devices[r]);
}

#define MANY_STAGES 16 /* above, equal stages share a line */

static uint64_t stage_bytes(const ty_plan *plan, uint32_t s)
{
    return ty_workload_parameter_bytes(plan->workload, plan->stages[s].first_layer,
                                       plan->stages[s].layer_count);
}

static bool is_like(const ty_plan *plan, uint32_t s, uint32_t t)
{
    return plan->stages[s].layer_count == plan->stages[t].layer_count &&
           plan->stages[s].replicas == plan->stages[t].replicas &&
           stage_bytes(plan, s) == stage_bytes(plan, t);
}

/* Prints stages [s, s + run) on one line: layers and devices of each. */
static void print_stage_run(const ty_plan *plan, uint32_t s, uint32_t run, ty_text *text)
{
    const ty_workload *w = plan->workload;
    const ty_plan_stage *stage = &plan->stages[s], *last = &plan->stages[s + run - 1];
    char parameters[32], label[32];
    ty_text range = {0}, devices = {0};

    if (run > 1)
        ty_text_addf(&range, "%u x %u: ", run, stage->layer_count);
    if (stage->layer_count == 0)
        ty_text_add(&range, "actors, who play for those who learn");
    else
        ty_text_addf(&range, "%s .. %s", w->layers[stage->first_layer].name,
                     w->layers[last->first_layer + last->layer_count - 1].name);
    if (run == 1 && stage->layer_count > 0)
        ty_text_addf(&range, " (%u)", stage->layer_count);
    snprintf(label, sizeof label, run > 1 ? "%u..%u" : "%u", s, s + run - 1);
    if (run > 1)
        ty_text_addf(&devices, "%u each", stage->replicas * ty_plan_replica_ranks(plan));
    else
        devices_text(plan, stage, &devices);
    /* Bytes of entire elements. NOLINTNEXTLINE(bugprone-integer-division) */
    ty_format_count((double)(stage_bytes(plan, s) / w->element_bytes), parameters);
    ty_text_addf(text, "%5s  ", label);
    ty_wrap_cell(text, 36, range.data != NULL ? range.data : "");
    ty_text_addf(text, "  %8u  ", stage->replicas);
    ty_wrap_cell(text, 12, devices.data != NULL ? devices.data : "");
    ty_text_addf(text, "  %10s\n", parameters);
    ty_text_clear(&range);
    ty_text_clear(&devices);
}

void ty_print_stages(const ty_plan *plan, ty_text *text)
{
    uint32_t run;

    ty_text_addf(text, "stage  %-36s  replicas  %-12s  parameters\n", "layers", "devices");
    for (uint32_t s = 0; s < plan->stage_count; s += run) {
        run = 1;
        while (plan->stage_count > MANY_STAGES && s + run < plan->stage_count &&
               is_like(plan, s, s + run))
            run++;
        print_stage_run(plan, s, run, text);
    }
}

/* Writes "ring and tree": the names of the kinds that occur, out of `count`. */
static void kinds_text(const bool *is_there, int count, const char *(*name)(int), ty_text *text)
{
    bool is_first = true;

    for (int k = 0; k < count; k++) {
        if (!is_there[k])
            continue;
        ty_text_addf(text, "%s%s", is_first ? ", " : " and ", name(k));
        is_first = false;
    }
}

static const char *algorithm_name(int algorithm)
{
    return ty_algorithm_name((ty_algorithm)algorithm);
}

static const char *compression_name(int compression)
{
    return compression == TY_COMPRESSION_NONE
               ? "uncompressed"
               : ty_compression_name((ty_compression_kind)compression);
}

static void print_buckets(const ty_plan *plan, ty_text *text)
{
    uint64_t bytes = 0;
    uint32_t exchanged = 0;
    const bool is_evolution = plan->workload->learning == TY_LEARNING_EVOLUTION;
    char when[80] = "per step";
    bool is_plain = true;
    bool algorithms[TY_ALGORITHM_COUNT] = {false}, compressions[TY_COMPRESSION_COUNT] = {false};
    char size[32];
    ty_text kinds = {0};

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        if (ty_bucket_device_count(plan, bucket) == 1)
            continue;
        exchanged++;
        bytes += ty_bucket_exchange_bytes(plan, bucket);
        algorithms[bucket->algorithm] = true;
        compressions[bucket->compression.kind] = true;
    }
    if (exchanged == 0)
        return;
    for (int k = 0; k < TY_COMPRESSION_COUNT; k++)
        is_plain = is_plain && (k == TY_COMPRESSION_NONE || !compressions[k]);
    if (is_plain && !is_evolution && plan->workload->local_steps <= 1 && plan->staleness == 0 &&
        plan->exchange_order == NULL)
        return;
    ty_format_bytes((double)bytes, size);
    kinds_text(algorithms, TY_ALGORITHM_COUNT, algorithm_name, &kinds);
    kinds_text(compressions, TY_COMPRESSION_COUNT, compression_name, &kinds);
    if (plan->workload->local_steps > 1)
        snprintf(when, sizeof when, "every %u steps", plan->workload->local_steps);
    if (plan->staleness > 0)
        snprintf(when, sizeof when, "per step, up to %u step%s late", plan->staleness,
                 plan->staleness > 1 ? "s" : "");
    if (plan->exchange_order != NULL)
        snprintf(when, sizeof when, "per step, first layers first");
    ty_print_fact(text, is_evolution ? "Scores" : "Gradients", "%u bucket%s, %s %s%s", exchanged,
                  exchanged > 1 ? "s" : "", size, when, kinds.data != NULL ? kinds.data : "");
    ty_text_clear(&kinds);
}

enum { LISTED_SERVERS = 8 };

/* "2 that train nothing, on h14 and h15, each with half of every bucket: 98 MiB" */
static void print_servers(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    ty_server_map map = {0};
    ty_text hosts = {0};
    uint64_t most = 0;
    char bytes[32];

    if (plan->servers.count == 0 || ty_server_map_make(plan, &map, NULL) != TY_OK)
        return;
    for (uint32_t s = 0; s < plan->servers.count; s++) {
        const uint64_t here = ty_server_bytes(plan, &map, s);
        most = here > most ? here : most;
        if (s < LISTED_SERVERS && plan->servers.devices[s] < ty_cluster_device_count(cluster))
            ty_text_addf(&hosts, "%s%s", s > 0 ? ", " : "",
                         ty_cluster_host_name(
                             cluster, ty_cluster_device_host(cluster, plan->servers.devices[s])));
    }
    ty_format_memory((double)most, bytes);
    ty_print_fact(
        text, "Servers",
        "%u that train nothing, on %s%s; gradients divided by %s, up to %s of memory on each",
        plan->servers.count, hosts.data != NULL ? hosts.data : "",
        plan->servers.count > LISTED_SERVERS ? " ..." : "",
        ty_server_shard_name(plan->servers.shard), bytes);
    ty_text_clear(&hosts);
    ty_server_map_clear(&map);
}

/* "19.1 k samples/s at most, by nas; of the samples 62 % from nvme, 38 % from nas" */
static void print_input(const ty_plan *plan, ty_text *text)
{
    ty_input_forecast input;
    ty_text shares = {0};
    char rate[32];

    if (ty_plan_input(plan, &input, NULL) != TY_OK || input.bound_by == NULL)
        return;
    ty_format_count(input.samples_per_s * plan->stages[0].replicas * ty_plan_replica_ranks(plan),
                    rate);
    for (uint32_t i = 0; i < ty_cluster_storage_count(plan->cluster); i++)
        if (input.level_share[i] > 0)
            ty_text_addf(&shares, "%s%.3g %% from %s", shares.length > 0 ? ", " : "; samples come ",
                         100 * input.level_share[i], ty_cluster_storage(plan->cluster, i)->name);
    ty_print_fact(text, "Input", "%s samples/s at most, by %s%s", rate, input.bound_by,
                  shares.data != NULL ? shares.data : "");
    ty_text_clear(&shares);
}

/* "phone, 100 MB and 100 ms" */
static void budget_text(const ty_budget *budget, ty_text *text)
{
    const char *before = budget->name[0] != '\0' ? ", " : "";
    char figure[32];

    ty_text_add(text, budget->name);
    if (budget->memory_bytes > 0) {
        ty_format_bytes(budget->memory_bytes, figure);
        ty_text_addf(text, "%s%s", before, figure);
        before = " and ";
    }
    if (budget->time_s > 0) {
        ty_format_seconds(budget->time_s, figure);
        ty_text_addf(text, "%s%s", before, figure);
    }
}

/* "318 kB: weights 269 kB, activations 49.2 kB; 18.6 ms per sample" */
static void need_text(const ty_variant_need *need, ty_text *text)
{
    char all[32], weights[32], activations[32], seconds[32];

    ty_format_bytes((double)need->weight_bytes + (double)need->activation_bytes, all);
    ty_format_bytes((double)need->weight_bytes, weights);
    ty_format_bytes((double)need->activation_bytes, activations);
    ty_text_addf(text, "%s: weights %s, activations %s", all, weights, activations);
    if (need->time_s > 0) {
        ty_format_seconds(need->time_s, seconds);
        ty_text_addf(text, "; %s per sample", seconds);
    }
}

void ty_deployment_sentence(const ty_deployment *d, ty_text *text)
{
    char name[TY_VARIANT_TEXT_SIZE];

    if (d->variant.bits == 0)
        return;
    ty_variant_text(&d->variant, name);
    ty_text_addf(text, "as %s, ", name);
    need_text(&d->need, text);
    ty_text_add(text, " (budget: ");
    budget_text(&d->budget, text);
    ty_text_add(text, "); steps of training are the same without");
}

void ty_print_deployment(const ty_plan *plan, ty_text *text)
{
    ty_text sentence = {0};

    ty_deployment_sentence(&plan->deployment, &sentence);
    if (sentence.length > 0 && !sentence.failed)
        ty_print_fact(text, "Deployed", "%s", sentence.data);
    ty_text_clear(&sentence);
}

/* Prints the needs of the variants before the chosen one, and of those that keep the budget after
 * it. */
void ty_print_variants(const ty_plan *plan, ty_text *text)
{
    const ty_deployment *d = &plan->deployment;

    if (d->variant.bits == 0)
        return;
    ty_text_add(text, "\n         variant     weights  activations    a sample  of the budget\n");
    for (uint32_t i = 0; i < TY_VARIANT_COUNT; i++) {
        const ty_variant variant = ty_variant_at(i);
        ty_variant_need need;
        char name[TY_VARIANT_TEXT_SIZE], weights[32], activations[32], seconds[32] = "-";
        if (ty_variant_needs(plan->workload, &variant, &d->budget, &need, NULL) != TY_OK)
            continue;
        ty_variant_text(&variant, name);
        ty_format_bytes((double)need.weight_bytes, weights);
        ty_format_bytes((double)need.activation_bytes, activations);
        if (need.time_s > 0)
            ty_format_seconds(need.time_s, seconds);
        ty_text_addf(text, "%16s  %10s  %11s  %10s  %s\n", name, weights, activations, seconds,
                     variant.bits == d->variant.bits &&
                             variant.pruned_percent == d->variant.pruned_percent
                         ? "chosen"
                     : ty_budget_is_kept(&d->budget, &need) ? "kept"
                                                            : "too much");
    }
}

/* Prints why an embedding is sent as rows: the bytes of the busiest link of a ring, either way. */
static void print_rows(const ty_plan *plan, ty_text *text)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        const ty_layer *layer = &plan->workload->layers[bucket->first_layer];
        const uint32_t members = ty_bucket_device_count(plan, bucket);
        const double gather = ty_collective_terms_of(TY_ALL_GATHER, TY_RING, members).edge_share;
        const double sum = ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, members).edge_share;
        char gathered[32], summed[32], room[32], rows[32];
        if (!ty_compression_at(bucket->compression.kind)->sends_rows)
            continue;
        ty_format_count((double)ty_bucket_extent(plan, bucket).row_room, room);
        ty_format_count((double)layer->attributes[TY_VOCABULARY], rows);
        ty_format_bytes(gather * (double)ty_bucket_wire_bytes(plan, bucket, 0), gathered);
        ty_format_bytes(sum * (double)bucket->gradient_bytes, summed);
        ty_print_fact(
            text, "Rows",
            "of %s each replica sends at most %s of %s: %s over a link of a ring instead of "
            "%s uncompressed",
            layer->name, room, rows, gathered, summed);
    }
}

void ty_print_details(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    print_servers(plan, cluster, text);
    print_input(plan, text);
    print_buckets(plan, text);
    print_rows(plan, text);
    ty_print_deployment(plan, text);
}

static void print_memory_row(const ty_memory_use *use, const char *label, ty_text *text)
{
    const uint64_t rows[] = {use->parameter_bytes,     use->gradient_bytes,
                             use->optimizer_bytes,     use->activation_bytes,
                             use->communication_bytes, use->compression_bytes,
                             use->workspace_bytes,     ty_memory_use_total(use)};

    ty_text_addf(text, "%5s", label);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char bytes[32];
        ty_format_memory((double)rows[i], bytes);
        ty_text_addf(text, " %8s", bytes);
    }
    ty_text_add(text, "\n");
}

void ty_print_memory(const ty_plan *plan, ty_text *text)
{
    const uint32_t pipeline_size = plan->stage_count / ty_plan_virtual_stages(plan);
    uint32_t run;

    if (plan->memory == NULL) {
        ty_text_add(text, "Memory      not predicted\n");
        return;
    }
    ty_text_add(text,
                "stage   params    grads    optim    activ    comms    compr     work    total\n");
    /* Virtual stages of a pipeline rank share its devices. */
    for (uint32_t s = 0; s < pipeline_size; s += run) {
        char label[32];
        run = 1;
        while (pipeline_size > MANY_STAGES && s + run < pipeline_size &&
               memcmp(&plan->memory[s], &plan->memory[s + run], sizeof *plan->memory) == 0)
            run++;
        snprintf(label, sizeof label, run > 1 ? "%u..%u" : "%u", s, s + run - 1);
        print_memory_row(&plan->memory[s], label, text);
    }
    if (pipeline_size < plan->stage_count)
        ty_text_add(text, "Each row includes the virtual stages of its pipeline rank.\n");
}

void ty_print_uneven(const ty_plan *plan, ty_imbalance_kind kind, ty_text *text)
{
    const ty_imbalance *u = &plan->uneven[kind];
    const bool is_batch = kind == TY_UNEVEN_BATCH;

    if (u->count == 0)
        return;
    if (is_batch)
        ty_text_addf(text, "a batch of %u divides badly over %u devices: by the estimate ",
                     u->count, u->parts);
    else
        ty_text_addf(text,
                     "%u blocks divide badly over %u stages, which loses %.0f %% by the estimate: ",
                     u->count, u->parts, 100 * u->lost_share);
    for (uint32_t i = 0; i < u->better_count; i++)
        ty_text_addf(text, "%s%u%s %.0f %%", i > 0 ? ", " : "", u->better[i].count,
                     i > 0      ? ""
                     : is_batch ? " does"
                                : " stages do",
                     100 * (u->better[i].samples_per_s / plan->prediction.samples_per_s - 1));
    ty_text_add(text, u->better_count > 0 ? " more samples per second"
                                          : "stages that divide them are no faster here");
}

void ty_print_micro_batches(const ty_plan *plan, ty_text *text)
{
    uint32_t least = UINT32_MAX, most = 0;

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const uint32_t count = plan->micro_batches / plan->stages[s].replicas;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    ty_text_addf(text, "%u micro-batch%s of %u", plan->micro_batches,
                 plan->micro_batches > 1 ? "es" : "", plan->micro_batch_size);
    if (least < most)
        ty_text_addf(text, ", %u to %u per replica", least, most);
    else if (least < plan->micro_batches)
        ty_text_addf(text, ", %u per replica", least);
}

/* Prints "predicted 1650 (1500 to 1800)" and the error of the expected value. */
static void print_figure(const char *label, const double predicted[3], double measured,
                         bool is_predicted, const char *unit, ty_text *text)
{
    ty_text_addf(text, "%-11s ", label);
    if (is_predicted)
        ty_text_addf(text, "predicted %.4g%s (%.4g to %.4g), ", predicted[1], unit, predicted[0],
                     predicted[2]);
    if (measured > 0)
        ty_text_addf(text, "measured %.4g%s", measured, unit);
    else
        ty_text_add(text, "not reached");
    if (is_predicted && measured > 0)
        ty_text_addf(text, ": %+.1f %%%s", (predicted[1] / measured - 1) * 100,
                     measured < predicted[0] || measured > predicted[2] ? ", outside the interval"
                                                                        : "");
    ty_text_add(text, "\n");
}

void ty_print_target(const ty_target_comparison *t, ty_text *text)
{
    ty_text name = {0};

    if (!ty_target_is_set(&t->until))
        return;
    ty_target_text(&t->until, &name);
    ty_text_addf(text, "Target      %s%s\n", name.data != NULL ? name.data : "",
                 t->is_predicted ? ""
                                 : " (no prediction: how the workload converges is not known; "
                                   "--task)");
    print_figure("  steps", t->predicted_steps, t->measured_steps, t->is_predicted, "", text);
    print_figure("  time", t->predicted_s, t->measured_s, t->is_predicted, " s", text);
    ty_text_clear(&name);
}

void ty_print_busy(const ty_comparison *c, const char *gap, ty_text *text)
{
    char quiet[32];

    ty_text_addf(text, "was busy: %.0f %% of steps disturbed, others took %.0f %% of the cores;%s",
                 c->disturbed_share * 100, c->others_share * 100, gap);
    if (c->quiet_step_time_s > 0) {
        ty_format_seconds(c->quiet_step_time_s, quiet);
        ty_text_addf(text, "the %u quiet ones: %s, %+.1f %%", c->quiet_steps, quiet,
                     c->quiet_error * 100);
    } else
        ty_text_add(text, "none was quiet: run it again on a quiet machine");
}

/* Prints the run's results for the variant that the plan deploys. */
static void print_deployed(const ty_plan *plan, const ty_comparison *c, ty_text *text)
{
    char name[TY_VARIANT_TEXT_SIZE];

    ty_print_deployment(plan, text);
    if (c->variant.bits == 0)
        return;
    ty_variant_text(&c->variant, name);
    ty_print_fact(text, "Accuracy", "%.4f as trained, %.4f as %s: %+.4f", c->accuracy,
                  c->variant_accuracy, name, c->variant_accuracy - c->accuracy);
}

void ty_print_comparison(const ty_plan *plan, const ty_comparison *c, ty_text *text)
{
    char predicted[32], measured[32];

    ty_format_seconds(c->predicted.step_time_s, predicted);
    ty_format_seconds(c->measured.step_time_s, measured);
    ty_text_addf(text, "Step time   predicted %s, measured %s: %+.1f %%\n", predicted, measured,
                 c->step_time_error * 100);
    if (ty_comparison_is_busy(c)) {
        ty_text_add(text, "Machine     ");
        ty_print_busy(c, "\n            ", text);
        ty_text_add(text, "\n");
    }
    if (c->predicted_peak_memory_bytes > 0 && c->measured_peak_memory_bytes > 0) {
        ty_format_memory((double)c->predicted_peak_memory_bytes, predicted);
        ty_format_memory((double)c->measured_peak_memory_bytes, measured);
        ty_text_addf(text, "Memory      predicted %s, measured %s (largest stage replica)\n",
                     predicted, measured);
    }
    ty_print_target(&c->target, text);
    print_deployed(plan, c, text);
    ty_text_addf(
        text,
        "\n                    %10s %10s\ncompute             %9.1f%% %9.1f%%\n"
        "exposed collectives %9.1f%% %9.1f%%\nexposed send/recv   %9.1f%% %9.1f%%\n"
        "pipeline bubble     %9.1f%% %9.1f%%\ninput               %9.1f%% %9.1f%%\n\n",
        "predicted", "measured", c->predicted.compute_share * 100, c->measured.compute_share * 100,
        c->predicted.exposed_collective_share * 100, c->measured.exposed_collective_share * 100,
        c->predicted.exposed_transfer_share * 100, c->measured.exposed_transfer_share * 100,
        c->predicted.bubble_share * 100, c->measured.bubble_share * 100,
        c->predicted.input_share * 100, c->measured.input_share * 100);
    ty_text_addf(text, "%5s  %-32s %8s %10s %10s %8s\n", "stage", "operation", "per step",
                 "predicted", "measured", "error");
    for (uint32_t r = 0; r < c->row_count; r++) {
        const ty_comparison_row *row = &c->rows[r];
        char name[96], error[32] = "-";
        ty_operation_name(plan, row->op, row->first_layer, row->layer_count, row->bucket,
                          row->phase, name, sizeof name);
        ty_format_seconds(row->predicted_s, predicted);
        ty_format_seconds(row->measured_s, measured);
        if (row->measured_s > 0)
            snprintf(error, sizeof error, "%+.1f%%", row->error * 100);
        ty_text_addf(text, "%5u  ", row->stage);
        ty_wrap_cell(text, 32, name);
        ty_text_addf(text, " %8.0f %10s %10s %8s\n", row->per_step, predicted, measured, error);
    }
}

/* "as int4     accuracy 0.8512, loss 0.4211: -0.0043" */
static void print_variant_test(const ty_run *run, const ty_evaluation *evaluation, ty_text *text)
{
    char name[TY_VARIANT_TEXT_SIZE];

    if (run->variant.bits == 0)
        return;
    ty_variant_text(&run->variant, name);
    ty_print_fact(text, "", "accuracy %.4f, loss %.4f as %s: %+.4f", evaluation->variant_accuracy,
                  evaluation->variant_loss, name,
                  evaluation->variant_accuracy - evaluation->accuracy);
}

void ty_print_run(const ty_run *run, ty_text *text)
{
    char memory[32], wall[32];
    uint64_t peak = 0;

    for (uint32_t r = 0; r < run->stage_replica_count; r++)
        peak = run->peak_memory_bytes[r] > peak ? run->peak_memory_bytes[r] : peak;
    ty_format_memory((double)peak, memory);
    ty_format_seconds(run->wall_s, wall);
    ty_text_addf(text, "%u stage replica%s (%s), %u steps in %s\n", run->stage_replica_count,
                 run->stage_replica_count == 1 ? "" : "s", run->backend, run->step_count, wall);
    ty_print_summary(&run->summary, NULL, NULL, text);
    if (run->losses != NULL)
        ty_text_addf(text, "Loss        %.4f -> %.4f\n", run->step_count > 0 ? run->losses[0] : 0.0,
                     run->step_count > 0 ? run->losses[run->step_count - 1] : 0.0);
    else
        ty_text_add(text, "Loss        none: layers only took their time\n");
    ty_text_addf(text, "Memory      %s (largest stage replica)\n", memory);
    if (run->disturbance.others_share >= TY_BUSY_SHARE)
        ty_text_addf(text,
                     "Machine     busy: %u of %u steps disturbed, others took %.0f %% of the "
                     "cores, load %.1f\n",
                     run->disturbance.disturbed_steps, run->disturbance.steps,
                     run->disturbance.others_share * 100, run->disturbance.load);
    if (run->noise.steps > 0 && run->noise.square > 0)
        ty_text_addf(text, "Noise scale %.3g samples (a larger batch gains little)\n",
                     run->noise.variance / run->noise.square);
    for (uint32_t e = 0; e < run->evaluation_count; e++) {
        const ty_evaluation *evaluation = &run->evaluations[e];
        ty_format_seconds(evaluation->seconds, wall);
        ty_text_addf(text, "Test        accuracy %.4f, loss %.4f after %u steps (%s)\n",
                     evaluation->accuracy, evaluation->loss, evaluation->step, wall);
        print_variant_test(run, evaluation, text);
    }
}
