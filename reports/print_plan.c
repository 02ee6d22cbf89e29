/* Prints a plan for a terminal: launch settings, step time, and other layouts of the search. */
#include "print.h"
#include "ty_reports.h"
#include "wrap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The cluster ----------------------------------------------------------------------------- */

/* "64 h100-sxm", "8 v100-pcie-16gb and 4 p40" */
static void add_devices(const ty_cluster *cluster, ty_text *text)
{
    const uint32_t count = ty_cluster_device_count(cluster);
    uint32_t run;

    for (uint32_t d = 0; d < count; d += run) {
        const ty_device_type *type = ty_cluster_device_type(cluster, d);
        for (run = 1; d + run < count && ty_cluster_device_type(cluster, d + run) == type; run++)
            continue;
        ty_text_addf(text, "%s%u %s", d > 0 ? " and " : "", run, type->name);
    }
}

/* The fastest link of the first device, as "nvlink4". */
static const char *scale_up_kind(const ty_cluster *cluster)
{
    const uint32_t device = ty_cluster_device_vertex(cluster, 0);
    const ty_link_edge *best = NULL;

    for (uint32_t l = 0; l < ty_cluster_link_count(cluster); l++) {
        const ty_link_edge *link = ty_cluster_link(cluster, l);
        if ((link->from == device || link->to == device) &&
            (best == NULL || link->bandwidth_bytes_per_s > best->bandwidth_bytes_per_s))
            best = link;
    }
    return best == NULL ? NULL : best->kind;
}

/* Whether a link connects a host or its NIC to a switch of the network. */
static bool is_uplink(const ty_cluster *cluster, const ty_link_edge *link)
{
    const ty_vertex_kind ends[] = {ty_cluster_vertex_kind(cluster, link->from),
                                   ty_cluster_vertex_kind(cluster, link->to)};
    const ty_vertex_kind other = ends[0] == TY_VERTEX_SWITCH ? ends[1] : ends[0];

    return (ends[0] == TY_VERTEX_SWITCH || ends[1] == TY_VERTEX_SWITCH) &&
           (other == TY_VERTEX_NIC || other == TY_VERTEX_HOST);
}

/* Writes ", 8 x 400 Gbit/s InfiniBand": the network of a host, if hosts are equal. */
static void add_network(const ty_cluster *cluster, ty_text *text)
{
    static const char *const names[TY_LINK_COUNT] = {[TY_LINK_INFINIBAND] = " InfiniBand",
                                                     [TY_LINK_ROCE] = " RoCE",
                                                     [TY_LINK_EFA] = " EFA",
                                                     [TY_LINK_TCP] = " TCP",
                                                     [TY_LINK_ENA] = " ENA",
                                                     [TY_LINK_GVNIC] = " gVNIC",
                                                     [TY_LINK_TCPX] = " TCPX"};
    const uint32_t hosts = ty_cluster_host_count(cluster);
    const ty_host_type *type = ty_cluster_host_type(cluster, 0);
    const ty_link_edge *first = NULL;
    uint32_t uplinks = 0;
    double lanes = 1, gigabits;

    for (uint32_t l = 0; l < ty_cluster_link_count(cluster); l++) {
        const ty_link_edge *link = ty_cluster_link(cluster, l);
        if (!is_uplink(cluster, link))
            continue;
        if (first != NULL && (link->kind != first->kind ||
                              link->bandwidth_bytes_per_s < first->bandwidth_bytes_per_s ||
                              link->bandwidth_bytes_per_s > first->bandwidth_bytes_per_s))
            return;
        first = link;
        lanes = ty_cluster_link_lanes(cluster, l);
        uplinks++;
    }
    if (hosts < 2 || uplinks == 0 || uplinks % hosts > 0)
        return;
    if (type != NULL && type->nics_per_link > 0)
        lanes = type->nics_per_link;
    uplinks /= hosts;
    gigabits = first->bandwidth_bytes_per_s / lanes * 8e-9;
    ty_text_addf(text, ", %.3g x %.*g Gbit/s%s", uplinks * lanes, gigabits < 1000 ? 3 : 4, gigabits,
                 names[first->transport] != NULL ? names[first->transport] : "");
    if (first->flows > 0)
        ty_text_addf(text, " with %u flows", first->flows);
}

static void print_title(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    ty_text title = {0};

    ty_text_addf(&title, "%s on %s", plan->workload->name, plan->cluster_name);
    if (cluster != NULL) {
        const uint32_t hosts = ty_cluster_host_count(cluster);
        const char *kind = scale_up_kind(cluster);
        ty_text_add(&title, " (");
        add_devices(cluster, &title);
        if (hosts > 1 && strtoul(plan->cluster_name, NULL, 10) !=
                             hosts) /* the name "8x dgx-h100" has the count */
            ty_text_addf(&title, " on %u hosts", hosts);
        if (kind != NULL)
            ty_text_addf(&title, ", %s", kind);
        if (ty_cluster_host_is_staged(cluster, 0))
            ty_text_add(&title, " without peer-to-peer");
        add_network(cluster, &title);
        ty_text_add(&title, ")");
    }
    ty_wrap_add(text, 0, 2, title.data != NULL ? title.data : "");
    ty_text_clear(&title);
}

static uint32_t at_least_one(uint32_t count)
{
    return count > 1 ? count : 1;
}

/* "2,048" */
static void format_grouped(uint64_t number, char out[32])
{
    char digits[24];
    const int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);

    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
}

/* ---- The layout ------------------------------------------------------------------------------ */

/* Stages of actors have no layers. */
static bool is_of_actors(const ty_plan *plan, uint32_t stage)
{
    return plan->stages[stage].layer_count == 0;
}

static uint32_t first_trained(const ty_plan *plan)
{
    return plan->stage_count > 1 && is_of_actors(plan, 0) ? 1 : 0;
}

static bool has_equal_replicas(const ty_plan *plan)
{
    const uint32_t first = first_trained(plan);

    for (uint32_t s = first + 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[first].replicas)
            return false;
    return true;
}

static void print_sizes(const ty_plan *plan, ty_text *text)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan), vpp = ty_plan_virtual_stages(plan);
    const uint32_t first = first_trained(plan), pp = pipeline_size - first;
    const uint32_t actors = first > 0 ? plan->stages[0].replicas : 0;
    ty_text layout = {0};

    ty_text_addf(&layout, "TP %u  PP %u  VPP %u  DP %u", at_least_one(plan->tensor_parallel), pp,
                 vpp, plan->stages[first].replicas);
    for (uint32_t s = first + 1; !has_equal_replicas(plan) && s < pipeline_size; s++)
        ty_text_addf(&layout, "+%u", plan->stages[s].replicas);
    ty_text_addf(&layout, "  CP %u  EP %u", at_least_one(plan->context_parallel),
                 at_least_one(plan->expert_parallel));
    if (plan->sequence_parallel)
        ty_text_add(&layout, ", sequence parallel");
    if (plan->zero > 0)
        ty_text_addf(&layout, ", ZeRO %u", plan->zero);
    if (pp > 1 && plan->schedule != ty_schedule_default(vpp > 1))
        ty_text_addf(&layout, ", schedule %s", ty_schedule_name(plan->schedule));
    if (plan->table_shard != TY_TABLES_WHOLE)
        ty_text_addf(&layout, ", embedding tables sharded by %s",
                     ty_table_shard_name(plan->table_shard));
    if (plan->staleness > 0)
        ty_text_addf(&layout, ", staleness %u", plan->staleness);
    if (actors > 0)
        ty_text_addf(&layout, ", %u actor%s, lag %u", actors, actors > 1 ? "s" : "", plan->lag);
    ty_print_fact(text, "Layout", "%s", layout.data != NULL ? layout.data : "");
    ty_text_clear(&layout);
}

static void print_batch(const ty_plan *plan, ty_text *text)
{
    const uint64_t tokens = plan->workload->tokens_per_sample;
    uint32_t least = UINT32_MAX, most = 0;
    char batch[32], length[32], numbers[2][32];

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const uint32_t count = plan->micro_batches / plan->stages[s].replicas;
        if (is_of_actors(plan, s))
            continue;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    format_grouped(plan->global_batch, batch);
    format_grouped(tokens, length);
    format_grouped(least, numbers[0]);
    format_grouped(most, numbers[1]);
    ty_print_fact(text, "Batch", "%s %s%s%s%s, micro-batch %u, accumulation %s%s%s", batch,
                  tokens > 0 ? "sequences" : "samples", tokens > 0 ? " x " : "",
                  tokens > 0 ? length : "", tokens > 0 ? " tokens" : "", plan->micro_batch_size,
                  numbers[0], least < most ? " to " : "", least < most ? numbers[1] : "");
}

static void print_precision(const ty_plan *plan, ty_text *text)
{
    const ty_precision precision = plan->workload->precision;
    const ty_plan_stage *first = &plan->stages[0];
    const bool is_16_bits = plan->stack != NULL && plan->stack->gradient_bytes < sizeof(float);
    const ty_optimizer_row *row = ty_optimizer_row_of(plan->optimizer.kind);
    char states[80] = "";
    ty_text recompute = {0};

    if (first->recompute == TY_RECOMPUTE_NONE)
        ty_text_add(&recompute, "no");
    else
        ty_recompute_text(first->recompute, first->recompute_blocks, &recompute);
    if (row->state_bytes != NULL)
        snprintf(states, sizeof states, "%s%s optimizer states (%s)",
                 precision == TY_PRECISION_FP32 ? "; "
                 : is_16_bits                   ? "; 16-bit gradients, "
                                                : "; fp32 main gradients, ",
                 row->states, row->name);
    else if (precision != TY_PRECISION_FP32)
        snprintf(states, sizeof states, "%s",
                 is_16_bits ? "; 16-bit gradients, fp32 optimizer states"
                            : "; fp32 main gradients and optimizer states");
    ty_print_fact(text, "Precision", "%s%s%s; %s recomputation", ty_precision_name(precision),
                  ty_precision_is_narrow(precision) ? " in matrix products, bf16 elsewhere" : "",
                  states, recompute.data != NULL ? recompute.data : "");
    ty_text_clear(&recompute);
}

void ty_print_layout(const ty_plan *plan, ty_text *text)
{
    print_sizes(plan, text);
    if (plan->idle_devices > 0)
        ty_print_fact(text, "Idle", "%u of %u devices stay idle; cost and energy include them",
                      plan->idle_devices, plan->idle_devices + ty_plan_launched_count(plan));
    print_batch(plan, text);
    print_precision(plan, text);
}

/* ---- The prediction -------------------------------------------------------------------------- */

static void print_provenance(const ty_plan *plan, const ty_cluster *cluster, ty_text *text)
{
    ty_text certainty = {0};

    ty_print_certainty(plan, cluster, &certainty);
    ty_print_fact(text, "Provenance", "%s; %s", certainty.data != NULL ? certainty.data : "",
                  plan->simulation.step_time_s > 0 ? "simulated" : "estimated");
    ty_text_clear(&certainty);
}

/* Writes bytes in the unit of `of`, without the unit: "73.9" of "79.1 GiB". */
static void in_unit_of(uint64_t bytes, uint64_t of, char out[32])
{
    char whole[32];
    char *unit, *own;

    ty_format_memory((double)bytes, out);
    ty_format_memory((double)of, whole);
    unit = strchr(whole, ' ');
    own = strchr(out, ' ');
    if (unit != NULL && own != NULL && strcmp(unit, own) == 0)
        *own = '\0';
}

static void print_memory_peak(const ty_plan *plan, ty_text *text)
{
    ty_memory_peak peak;
    const ty_memory_use *use;
    char bytes[32], usable[32];
    ty_text line = {0};

    if (!ty_plan_memory_peak(plan, &peak)) {
        ty_print_fact(text, "Memory", "not predicted");
        return;
    }
    use = &plan->memory[peak.stage];
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {
        {"activations", use->activation_bytes},      {"optimizer", use->optimizer_bytes},
        {"gradients", use->gradient_bytes},          {"parameters", use->parameter_bytes},
        {"communication", use->communication_bytes}, {"compression", use->compression_bytes},
        {"workspace", use->workspace_bytes},
    };
    enum { PARTS = sizeof parts / sizeof parts[0], SHOWN_PARTS = 2 };
    size_t last = PARTS;

    in_unit_of(peak.bytes, peak.usable_bytes, bytes);
    ty_text_add(&line, bytes);
    if (peak.usable_bytes > 0) {
        ty_format_memory((double)peak.usable_bytes, usable);
        ty_text_addf(&line, " of %s", usable);
    }
    if (plan->stage_count > 1)
        ty_text_addf(&line, " on stage %u", peak.stage);
    if (peak.is_tight)
        ty_text_add(&line, ", a tight fit");
    for (int shown = 0; shown < SHOWN_PARTS; shown++) { /* the largest, then the next */
        size_t largest = PARTS;
        for (size_t i = 0; i < PARTS; i++)
            if (i != last && parts[i].bytes > 0 &&
                (largest == PARTS || parts[i].bytes > parts[largest].bytes))
                largest = i;
        if (largest == PARTS)
            break;
        in_unit_of(parts[largest].bytes, peak.bytes, bytes);
        ty_text_addf(&line, "%s %s %s", shown == 0 ? ";" : ",", parts[largest].name, bytes);
        last = largest;
    }
    ty_print_fact(text, "Memory", "%s", line.data != NULL ? line.data : "");
    ty_text_clear(&line);
}

/* ---- Alternatives ---------------------------------------------------------------------------- */

enum { FASTEST_SHOWN = 5, MOST_SHOWN = 8, MISFITS_SHOWN = 2 };
#define REASON_COLUMN 32
#define WORDS_COLUMN 58

typedef struct fix_word {
    const char *key, *value;
    size_t key_length, value_length;
} fix_word;

/* Reads the next "key=value" of the words of --fix. */
static bool next_word(const char **rest, fix_word *out)
{
    const char *equals = *rest == NULL ? NULL : strchr(*rest, '=');

    if (equals == NULL)
        return false;
    *out = (fix_word){.key = *rest,
                      .value = equals + 1,
                      .key_length = (size_t)(equals - *rest),
                      .value_length = strcspn(equals + 1, ",")};
    *rest = out->value[out->value_length] == ',' ? out->value + out->value_length + 1 : NULL;
    return true;
}

static bool is_key(const fix_word *word, const char *key)
{
    return strlen(key) == word->key_length && strncmp(word->key, key, word->key_length) == 0;
}

/* Sizes with their own columns. */
static const struct {
    const char *key, *title;
    int columns;
} sizes[] = {{"tp", "TP", 4}, {"pp", "PP", 5}, {"vpp", "VPP", 4},        {"dp", "DP", 6},
             {"cp", "CP", 4}, {"ep", "EP", 4}, {"micro_batch", "MBS", 5}};
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

/* Keys that do not distinguish alternatives. */
static bool is_detail(const fix_word *word)
{
    static const char *const keys[] = {"bucket",     "cycle",    "algorithm", "compress",
                                       "embeddings", "priority", "layers"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (is_key(word, keys[i]))
            return true;
    return false;
}

static bool has_column(const fix_word *word)
{
    for (size_t i = 0; i < SIZE_COUNT; i++)
        if (is_key(word, sizes[i].key))
            return true;
    return false;
}

/* Writes the words by which candidates are compared: without details; for one that does not fit,
 * only its sizes. */
static void add_layout(const ty_candidate *row, ty_text *text)
{
    const bool fits = ty_candidate_step_s(row) > 0;
    const char *rest = row->fix;
    fix_word word;

    if (row->fix == NULL)
        ty_text_add(text, row->name);
    while (next_word(&rest, &word))
        if (has_column(&word) || (fits && !is_detail(&word) && !is_key(&word, "compression")))
            ty_text_append(text, word.key, (size_t)(word.value + word.value_length - word.key) + 1);
}

static bool has_word(const char *fix, const fix_word *like)
{
    fix_word word;

    while (next_word(&fix, &word))
        if (word.key_length == like->key_length && word.value_length == like->value_length &&
            strncmp(word.key, like->key, like->key_length) == 0 &&
            strncmp(word.value, like->value, like->value_length) == 0)
            return true;
    return false;
}

/* The schedule that the column VPP implies. */
static bool is_told_by_vpp(const ty_plan *plan, const fix_word *word)
{
    return is_key(word, "schedule") &&
           (strncmp(word->value, "interleaved", word->value_length) == 0 ||
            (ty_plan_virtual_stages(plan) > 1 &&
             strncmp(word->value, "1f1b", word->value_length) == 0));
}

/* Writes words without a column that differ from the plan: "zero=0,recompute=full". */
static void add_differences(const ty_plan *plan, const ty_candidate *row, ty_text *text)
{
    const char *rest = row->fix;
    fix_word word;

    if (row->fix == NULL)
        ty_text_add(text, row->name);
    while (next_word(&rest, &word)) {
        if (is_detail(&word) || has_column(&word) || is_told_by_vpp(plan, &word) ||
            has_word(plan->fix, &word))
            continue;
        ty_text_add(text, text->length > 0 ? "," : "");
        ty_text_append(text, word.key, (size_t)(word.value + word.value_length - word.key));
    }
}

static void add_sizes(const ty_candidate *row, ty_text *text)
{
    /* Sizes that the words of a complete layout do not name are 1. */
    const bool is_whole = row->fix != NULL && strstr(row->fix, "micro_batch=") != NULL;

    for (size_t i = 0; i < SIZE_COUNT; i++) {
        const char *rest = row->fix;
        char value[16];
        fix_word word;
        snprintf(value, sizeof value, "%s", is_whole ? "1" : "-");
        while (next_word(&rest, &word))
            if (is_key(&word, sizes[i].key) && word.value_length < sizeof value)
                snprintf(value, sizeof value, "%.*s", (int)word.value_length, word.value);
            else if (is_key(&word, "replicas") && strcmp(sizes[i].key, "dp") == 0)
                snprintf(value, sizeof value,
                         "mixed"); /* the words after the figures give the size */
        ty_text_addf(text, "%*s", sizes[i].columns, value);
    }
}

/* Slowdown of a candidate against the plan; both simulated, or both estimated. */
static double slower_by(const ty_plan *plan, const ty_candidate *row)
{
    if (row->simulated_step_time_s > 0 && plan->simulation.step_time_s > 0)
        return row->simulated_step_time_s / plan->simulation.step_time_s - 1;
    return row->step_time_s / plan->prediction.step_time_s - 1;
}

static void print_alternative(const ty_plan *plan, const ty_candidate *row, ty_text *text)
{
    char seconds[32], bytes[32] = "-";
    ty_text words = {0};
    const double percent = 100 * slower_by(plan, row);

    add_sizes(row, text);
    if (!(ty_candidate_step_s(row) > 0)) {
        ty_text_add(text, "  ");
        ty_wrap_add(text, REASON_COLUMN + 2, REASON_COLUMN + 2, row->reason);
        return;
    }
    ty_format_seconds(ty_candidate_step_s(row), seconds);
    if (row->peak_memory_bytes > 0)
        ty_format_memory((double)row->peak_memory_bytes, bytes);
    ty_text_addf(text, "%9s %9s %4.0f %%", seconds, bytes,
                 fabs(percent) < 0.5 ? 0 : percent); /* no "-0" */
    add_differences(plan, row, &words);
    if (words.length > 0) {
        ty_text_add(text, "  ");
        ty_wrap_add(text, WORDS_COLUMN + 2, WORDS_COLUMN + 2, words.data);
    } else {
        ty_text_add(text, "\n");
    }
    ty_text_clear(&words);
}

typedef struct shown_row {
    uint32_t row;
    double slower; /* HUGE_VAL: does not fit */
} shown_row;

static int by_speed(const void *left, const void *right)
{
    const shown_row *a = left, *b = right;
    const int order = (a->slower > b->slower) - (a->slower < b->slower);

    return order != 0 ? order : (a->row > b->row) - (a->row < b->row);
}

/* Layouts printed so far. */
typedef struct shown_layouts {
    ty_text *layouts; /* [count] */
    uint32_t count;
} shown_layouts;

static bool is_new(shown_layouts *shown, const ty_candidate *row)
{
    ty_text *layout = &shown->layouts[shown->count];

    add_layout(row, layout);
    for (uint32_t i = 0; i < shown->count && !layout->failed; i++)
        if (strcmp(shown->layouts[i].data, layout->data) == 0) {
            ty_text_clear(layout);
            return false;
        }
    shown->count++;
    return !layout->failed;
}

/* Prints all layouts of --against, the fastest of each layout, those with less memory than all
 * faster ones, and the closest of those that do not fit. */
static void print_alternatives(const ty_plan *plan, ty_text *text)
{
    const uint32_t count = plan->candidate_count;
    shown_row *rows = ty_alloc(count + 1, sizeof *rows);
    shown_layouts shown = {.layouts = ty_alloc(count + 1, sizeof *shown.layouts)};
    uint32_t fitting = 0, misfits = 0;
    uint64_t least_bytes = UINT64_MAX;
    ty_text table = {0};
    char number[32];

    if (rows == NULL || shown.layouts == NULL)
        goto done;
    for (uint32_t c = 0; c < count; c++)
        rows[c] = (shown_row){c, ty_candidate_step_s(&plan->candidates[c]) > 0
                                     ? slower_by(plan, &plan->candidates[c])
                                     : HUGE_VAL};
    (void)is_new(&shown, &plan->candidates[0]);
    least_bytes = plan->candidates[0].peak_memory_bytes;
    qsort(rows, count, sizeof *rows, by_speed);
    for (uint32_t i = 0; i < count; i++) {
        const ty_candidate *row = &plan->candidates[rows[i].row];
        const bool fits = isfinite(rows[i].slower);
        const bool is_guess =
            fits && row->peak_memory_bytes == 0; /* by bounds only: not estimated */
        const bool is_wanted =
            row->is_asked ||
            (fits ? fitting < FASTEST_SHOWN ||
                        (fitting < MOST_SHOWN && row->peak_memory_bytes < least_bytes)
                  : misfits < MISFITS_SHOWN);
        if (rows[i].row == 0 || !is_wanted || (is_guess && !row->is_asked) ||
            (!is_new(&shown, row) && !row->is_asked))
            continue;
        print_alternative(plan, row, &table);
        fitting += fits;
        misfits += !fits;
        if (fits && row->peak_memory_bytes < least_bytes)
            least_bytes = row->peak_memory_bytes;
    }
    if (table.length > 0) {
        ty_text_add(text, "Alternatives\n");
        for (size_t i = 0; i < SIZE_COUNT; i++)
            ty_text_addf(text, "%*s", sizes[i].columns, sizes[i].title);
        ty_text_addf(text, "%9s %9s %6s\n", "step", "memory", "slower");
        ty_text_append(text, table.data, table.length);
    }
    format_grouped(plan->searched.layouts > 0 ? plan->searched.layouts : count, number);
    ty_text_addf(text, "%s %s searched; --candidates FILE lists all, --json has everything\n",
                 number, plan->searched.layouts > 0 ? "layouts" : "plans");
done:
    for (uint32_t i = 0; shown.layouts != NULL && i <= count; i++)
        ty_text_clear(&shown.layouts[i]);
    ty_text_clear(&table);
    ty_free(shown.layouts);
    ty_free(rows);
}

/* ---- Output ---------------------------------------------------------------------------------- */

/* Begin of the words of an option; NULL: none. */
static const char *next_option(const char *words)
{
    return words == NULL ? NULL : strstr(words, " -");
}

/* Prints a command in lines that a shell joins again. Words stay in one piece. */
static void print_command(const char *label, const char *command, ty_text *text)
{
    size_t column = LABEL_COLUMNS;

    ty_wrap_cell(text, LABEL_COLUMNS, label);
    while (command != NULL && *command != '\0') {
        const char *next = next_option(command + 1);
        const size_t length = next == NULL ? strlen(command) : (size_t)(next - command);
        if (column > LABEL_COLUMNS && column + length + 2 > TY_PRINT_COLUMNS) {
            ty_text_add(text, " \\\n             ");
            column = LABEL_COLUMNS + 1;
        }
        ty_text_append(text, command, length);
        column += length;
        command = next;
    }
    ty_text_add(text, "\n");
}

static void print_reproduction(const ty_plan *plan, const char *question, ty_text *text)
{
    ty_text command = {0};

    if (question == NULL || plan->fix == NULL || plan->stack == NULL)
        return;
    ty_text_addf(&command, "trainyard plan %s ", question);
    ty_plan_add_question(plan, &command);
    ty_text_addf(&command, " --fix %s", plan->fix);
    ty_text_add(text, "\n");
    if (!command.failed)
        print_command("Reproduce", command.data, text);
    ty_text_clear(&command);
}

/* Whether to print the layers of stages, since --fix cannot name them. */
static bool has_stages_to_show(const ty_plan *plan)
{
    return plan->stage_count > 1 && (plan->fix == NULL || plan->workload->tokens_per_sample == 0 ||
                                     !has_equal_replicas(plan));
}

static void print_recipe(const ty_plan *plan, ty_text *text)
{
    ty_text recipe = {0};

    ty_plan_recipe_text(plan, &recipe);
    if (recipe.length > 0)
        ty_print_fact(text, "Training", "%s", recipe.data);
    ty_text_clear(&recipe);
}

static void print_waiting(const ty_plan *plan, ty_text *text)
{
    const uint32_t devices = ty_plan_rank_count(plan);
    const double share = plan->stack == NULL ? 0 : 1 - 1 / ty_stack_waiting(plan->stack, devices);

    if (share >= 0.0005)
        ty_print_fact(text, "Waiting", "%.1f %% of compute, for the slowest of %u devices",
                      100 * share, devices);
}

void ty_print_plan(const ty_plan *plan, const ty_cluster *cluster, const char *question,
                   ty_text *text)
{
    const char *noun =
        cluster == NULL ? "device" : ty_device_noun(ty_cluster_device_type(cluster, 0));

    print_title(plan, cluster, text);
    ty_text_add(text, "\n");
    ty_print_layout(plan, text);
    if (plan->stack != NULL)
        ty_print_stack_name(plan->stack, text);
    ty_print_details(plan, cluster, text);
    print_recipe(plan, text);
    ty_text_add(text, "\n");
    if (plan->has_prediction) {
        ty_print_summary(ty_plan_summary(plan), &plan->interval, noun, text);
        print_waiting(plan, text);
    }
    print_memory_peak(plan, text);
    if (plan->cost.steps > 0)
        ty_training_cost_line(&plan->cost, text);
    if (plan->has_prediction) {
        ty_text_add(text, "\n");
        print_provenance(plan, cluster, text);
        ty_print_nearest(plan, text);
    }
    if (has_stages_to_show(plan)) {
        ty_text_add(text, "\n");
        ty_print_stages(plan, text);
    }
    ty_print_variants(plan, text);
    if (plan->candidate_count > 1 && plan->prediction.step_time_s > 0) {
        ty_text_add(text, "\n");
        print_alternatives(plan, text);
    }
    print_reproduction(plan, question, text);
}
