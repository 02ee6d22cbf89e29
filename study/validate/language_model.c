/* Records of language models as questions. */
#include "row_question.h"

#include "ty_topologies.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 1048576.0 /* largest plausible size */
#define USUAL_VOCABULARY 51200
#define BERT_VOCABULARY 30522
/* Tolerance between a number of equal layers and a stated number of parameters. */
#define SIZE_TOLERANCE 0.025
#define LARGEST_PASS 512.0 /* sequences; a larger "batch per device" is per step */
#define MOST_IN_HOST 8.0   /* TP size in an unsplit model-parallel degree */
#define SECONDS_PER_MINUTE 60.0
/* Narayanan et al. 2021 count model flop with recomputation as 4/3. */
#define WITH_RECOMPUTE (4.0 / 3.0)

typedef struct reading {
    const ty_json *names, *software; /* the row of language_stacks; NULL: none */
    const ty_record *record;
    ty_row_question *out;
    char *reason;
    /* The model. */
    const char *words; /* workload text if its name is known; "": by its sizes */
    double layers, hidden, heads, kv_heads, head_size, ffn, vocabulary, sequence;
    double experts, chosen, expert_ffn, shared_ffn, dense_layers;
    bool is_gated;
    /* The layout. */
    double devices, per_host, tp, cp, ep, pp, dp, virtual_stages, micro, batch;
    const char *schedule, *recompute;
    double zero;
    bool sequence_parallel;
} reading;

static void give_up(const reading *r, const char *why)
{
    if (r->reason[0] == '\0')
        snprintf(r->reason, TY_SKIP_REASON_SIZE, "%s", why);
}

static void assume(const reading *r, const char *format, ...) TY_PRINTF(2, 3);
static void assume(const reading *r, const char *format, ...)
{
    char what[TY_ROW_QUESTION_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    ty_row_question_add(r->out->assumed, "%s%s", r->out->assumed[0] != '\0' ? ", " : "", what);
}

static bool has(const reading *r, const char *path)
{
    return ty_find_has(r->record->json, path);
}

/* A figure of the record, or `otherwise` if it is not stated; a text is no figure. */
static double number(const reading *r, const char *path, double otherwise)
{
    const double value = ty_find_number(r->record->json, path, 0);

    if (ty_find_text(r->record->json, path)[0] != '\0') {
        char why[96];
        snprintf(why, sizeof why, "%.60s is stated in words", strchr(path, '.') + 1);
        give_up(r, why);
    }
    return value > 0 ? value : otherwise;
}

/* The default of the record's software; 0 if there is none. */
static double usual(const reading *r, const char *key)
{
    return ty_find_number(r->software, key, 0);
}

/* ---- The model ------------------------------------------------------------------------------- */

static bool is_family(const reading *r, const char *family)
{
    return strcmp(r->record->model_family, family) == 0;
}

/* A number of heads of a usual size that divides the width and is divisible by TP. */
static void guess_heads(reading *r)
{
    static const double sizes[] = {128, 64, 96, 120};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        r->heads = floor(r->hidden / sizes[i]);
        if (fmod(r->hidden, sizes[i]) > 0 || fmod(r->heads, fmax(1, r->record->tp)) > 0)
            continue;
        assume(r, "heads of %.10g", sizes[i]);
        return;
    }
    give_up(r, "heads not stated, and none of the usual sizes divide the width");
}

/* Layers of a model given as "52B": the number per stage that gives this size. */
static void guess_layers(reading *r)
{
    const double size = 1e9 * strtod(ty_find_text(r->record->json, "model.size_label"), NULL);
    const double stages = fmax(1, r->record->pp);
    const double layer = 12 * r->hidden * r->hidden, rest = r->vocabulary * r->hidden;

    r->layers = stages * fmax(1, round((size - rest) / layer / stages));
    if (!(fabs((r->layers * layer + rest) / size - 1) < SIZE_TOLERANCE)) {
        give_up(r, "no whole number of layers a stage has the stated size");
        return;
    }
    assume(r, "%.0f layers by the stated size", r->layers);
}

static void read_sizes(reading *r)
{
    const char *attention = ty_find_text(r->record->json, "model.attention");

    r->layers = number(r, "model.layers", 0);
    r->hidden = number(r, "model.hidden", usual(r, "hidden"));
    r->vocabulary = number(r, "model.vocab", 0);
    if (!(r->vocabulary > 0)) {
        r->vocabulary = is_family(r, "bert") ? BERT_VOCABULARY : USUAL_VOCABULARY;
        assume(r, "a vocabulary of %d,%03d", (int)r->vocabulary / 1000, (int)r->vocabulary % 1000);
    }
    if (!(r->layers > 0) && r->hidden > 0 && has(r, "model.size_label"))
        guess_layers(r);
    r->heads = number(r, "model.heads", 0);
    if (!(r->heads > 0) && r->hidden > 0)
        guess_heads(r);
    r->kv_heads = number(r, "model.kv_heads", 0);
    r->head_size = number(r, "model.head_size", 0);
    r->experts = number(r, "model.experts", 0);
    r->chosen = number(r, "model.experts_per_token", 0);
    r->ffn = number(r, "model.ffn", 0);
    r->expert_ffn = number(r, "model.moe_ffn", r->ffn);
    r->shared_ffn = number(r, "model.shared_experts", 0) * r->expert_ffn;
    r->dense_layers = number(r, "model.dense_layers", 0);
    r->is_gated = ty_find_flag(r->record->json, "model.gated", r->experts > 0);
    if (!(r->ffn > 0))
        r->ffn = r->experts > 0 ? r->expert_ffn : 4 * r->hidden;
    if (is_family(r, "t5"))
        give_up(r, "an encoder and decoder whose sizes its name does not tell");
    else if (attention[0] != '\0' && strcmp(attention, "gqa") != 0)
        give_up(r, "attention whose sizes are not stated");
    else if (!(r->layers > 0 && r->hidden > 0))
        give_up(r, "layers or hidden size not stated, and not told by the model's name");
    else if (!(r->sequence > 0))
        give_up(r, "sequence not stated");
    else if (r->experts > 0 && !(r->chosen > 0))
        give_up(r, "experts of a token not stated");
}

static void read_model(reading *r)
{
    const ty_record *record = r->record;
    const ty_json *known = ty_names_row(r->names, "language_models", record);
    const double tokens = known != NULL ? ty_find_number(known, "tokens", 0) : 0;
    double sequence = known != NULL ? ty_find_number(known, "sequence", 0) : 0;

    r->words = "";
    if (known != NULL &&
        (ty_find_flag(known, "whole", false) || !has(r, "model.hidden") || !has(r, "model.vocab")))
        r->words = ty_find_text(known, "workload");
    r->sequence = number(r, "model.seq", 0);
    if (is_family(r, "bert") && !(r->sequence > 0)) /* Devlin et al. 2019, appendix A; SQuAD's */
        sequence = strncmp(ty_find_text(record->json, "model.variant"), "Pre", 3) == 0 ? 128 : 384;
    if (!(r->sequence > 0) && sequence > 0) {
        r->sequence = sequence;
        assume(r, "sequences of %.10g", r->sequence);
    }
    if (tokens > 0) {
        r->sequence = tokens;
        assume(r, "%.0f tokens of a sample are not padding", tokens);
    }
    if (strstr(r->words, "has_frozen_matrices") == NULL &&
        (strstr(record->model, "LoRA") != NULL || strstr(record->id, "lora") != NULL))
        give_up(r, "adapters (LoRA) were trained, not the model: its weights have no gradients");
    if (r->words[0] == '\0')
        read_sizes(r);
    else if (!(r->sequence > 0))
        give_up(r, "sequence not stated");
    else
        assume(r, "sizes by the model's name");
}

static void write_model(const reading *r)
{
    char *w = r->out->workload;

    if (r->words[0] != '\0') {
        ty_row_question_add(w, "%s sequence=%.0f", r->words, r->sequence);
        return;
    }
    ty_row_question_add(w, "%s blocks=%.0f features=%.0f heads=%.0f",
                        is_family(r, "bert") ? "encoder"
                        : r->is_gated        ? "decoder"
                                             : "transformer",
                        r->layers, r->hidden, r->heads);
    if (r->kv_heads > 0 && !is_family(r, "bert"))
        ty_row_question_add(w, " kv_heads=%.0f", r->kv_heads);
    if (r->head_size > 0 && !is_family(r, "bert"))
        ty_row_question_add(w, " head_size=%.0f", r->head_size);
    ty_row_question_add(w, " hidden_features=%.0f vocabulary=%.0f sequence=%.0f", r->ffn,
                        r->vocabulary, r->sequence);
    if (is_family(r, "bert")) {
        ty_row_question_add(w, " positions=%.0f token_types=2 head=masked", fmax(512, r->sequence));
        return;
    }
    if (!r->is_gated)
        ty_row_question_add(w, " positions=%.0f", r->sequence);
    if (r->experts > 0)
        ty_row_question_add(w, " experts=%.0f experts_per_token=%.0f expert_features=%.0f",
                            r->experts, r->chosen, r->expert_ffn);
    if (r->shared_ffn > 0)
        ty_row_question_add(w, " shared_features=%.0f", r->shared_ffn);
    if (r->experts > 0 && r->dense_layers > 0)
        ty_row_question_add(w, " dense_blocks=%.0f", r->dense_layers);
}

/* ---- The cluster ----------------------------------------------------------------------------- */

/* A slice of chips, as close to a cube as possible: assigns prime factors, the largest first, to
 * the shortest axis. */
static void write_torus(reading *r)
{
    const uint32_t axes = (uint32_t)usual(r, "torus");
    uint32_t sizes[TY_TORUS_AXES] = {1, 1, 1, 1}, rest = (uint32_t)r->devices, least = UINT32_MAX;
    char shape[64] = "";
    size_t length = 0;

    for (uint32_t factor = rest; factor > 1; factor--) {
        bool is_prime = true;
        for (uint32_t d = 2; d * d <= factor && is_prime; d++)
            is_prime = factor % d != 0;
        while (is_prime && rest % factor == 0) {
            uint32_t smallest = 0;
            for (uint32_t i = 1; i < axes; i++)
                smallest = sizes[i] <= sizes[smallest] ? i : smallest;
            sizes[smallest] *= factor;
            rest /= factor;
        }
    }
    for (uint32_t i = 0; i < axes; i++) {
        least = sizes[i] < least ? sizes[i] : least;
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%u", i == 0 ? "" : "x",
                                   sizes[i]);
    }
    ty_row_question_add(r->out->cluster, "%s:%s @%s %s",
                        least >= usual(r, "closed_from") ? "torus" : "mesh", shape,
                        ty_find_text(r->software, "device"), ty_find_text(r->software, "network"));
    assume(r, "a slice of %s", shape);
}

static void write_cluster(reading *r)
{
    const ty_json *json = r->record->json;
    const char *inside = ty_find_text(r->software, "inside");
    const char *network = ty_find_text(r->software, "network");
    const double pod = usual(r, "pod");
    const double inside_rate =
        ty_find_number(json, "cluster.intra_node.GBps_per_gpu_per_direction", 0);
    const double outside_rate = r->record->node_gigabytes_per_s;
    double hosts, stated;

    r->devices = r->record->gpus;
    if (!(r->devices >= 1 && r->devices <= LARGEST)) {
        give_up(r, "number of devices not stated");
        return;
    }
    if (usual(r, "torus") > 0 && r->devices > 1) {
        write_torus(r);
        return;
    }
    /* Equal hosts, none larger than stated: 256 devices in racks of 72 are four of 64. */
    stated = r->record->gpus_per_node >= 1 ? r->record->gpus_per_node : r->devices;
    stated = fmin(pod > 0 ? pod : stated, r->devices);
    r->per_host = fmax(1, floor(stated));
    while (fmod(r->devices, r->per_host) > 0)
        r->per_host--;
    if (!(pod > 0) && r->per_host < stated)
        assume(r, "devices a host of %.10g", r->per_host);
    hosts = r->devices / r->per_host;
    ty_row_question_add(r->out->cluster, "host:%.0f gpu:%.0f @%s %s", hosts, r->per_host,
                        ty_find_text(r->software, "device"), inside);
    if (inside_rate > 0)
        ty_row_question_add(r->out->cluster, "=%.10gGB/s", inside_rate);
    else if (r->per_host > 1)
        assume(r, "%s inside", inside);
    ty_row_question_add(r->out->cluster, " %s", network);
    if (outside_rate > 0)
        ty_row_question_add(r->out->cluster, "=%.10gGB/s", outside_rate / r->per_host);
    else if (hosts > 1)
        assume(r, "%s a device between hosts", network);
}

/* ---- The layout ------------------------------------------------------------------------------ */

/* The catalogue's word for a published one; NULL if there is none. */
static const char *word_of(const reading *r, const char *list, const char *published)
{
    const ty_json *words;
    const char *word;

    return ty_json_object(r->names, list, &words, NULL) == TY_OK && ty_json_has(words, published) &&
                   ty_json_string(words, published, &word, NULL) == TY_OK
               ? word
               : NULL;
}

/* Splits a combined degree: TP inside a host, as large as possible, PP for the rest. */
static void split_model_parallel(reading *r)
{
    const double together = ty_find_number(r->record->json, "parallel.model_parallel", 0);

    if (!(together > 1))
        return;
    r->tp = fmin(MOST_IN_HOST, together);
    while (fmod(together, r->tp) > 0)
        r->tp--;
    r->pp = together / r->tp;
    assume(r, "tp %.0f, pp %.0f", r->tp, r->pp);
}

/* Whether the layout is unknown: decoders on several devices have no default layout, unless the
 * software shards everything; submissions are tuned by hand. */
static bool is_layout_open(const reading *r)
{
    const bool is_recipe = strcmp(r->record->kind, "training-speed") == 0;

    return r->devices > 1 && !(is_recipe && usual(r, "zero") >= 3) && !is_family(r, "bert") &&
           !is_family(r, "t5") && !has(r, "parallel.dp") && !has(r, "parallel.tp") &&
           !has(r, "parallel.pp");
}

static void read_layout(reading *r)
{
    const ty_record *record = r->record;
    const char *precision = record->dtype[0] != '\0' ? word_of(r, "precisions", record->dtype)
                                                     : ty_find_text(r->software, "precision");
    const char *recompute = ty_find_text(r->software, "recompute");
    double rest;

    if (recompute[0] == '\0')
        recompute = "none";
    r->tp = number(r, "parallel.tp", 1);
    r->cp = number(r, "parallel.cp", 1);
    r->ep = number(r, "parallel.ep", 1);
    r->pp = number(r, "parallel.pp", 1);
    if (!has(r, "parallel.tp"))
        split_model_parallel(r);
    r->virtual_stages = number(r, "parallel.interleave", 1);
    if (!has(r, "parallel.interleave") && record->schedule[0] == '\0' && r->pp > 1 &&
        usual(r, "interleave") > 1) {
        r->virtual_stages = usual(r, "interleave");
        assume(r, "%.0f chunks a stage", r->virtual_stages);
    }
    rest = r->tp * r->cp * r->pp;
    r->dp =
        number(r, "parallel.dp", floor(r->devices / rest)) * fmax(1, number(r, "parallel.fsdp", 1));
    r->zero = has(r, "parallel.zero") ? ty_find_number(record->json, "parallel.zero", 0)
                                      : usual(r, "zero");
    if (r->zero > 0 && !has(r, "parallel.zero"))
        assume(r, "ZeRO %.0f", r->zero);
    r->sequence_parallel =
        r->tp > 1 && ty_find_flag(record->json, "parallel.sequence_parallel",
                                  ty_find_flag(r->software, "sequence_parallel", false));
    r->schedule = word_of(r, "schedules", record->schedule[0] != '\0' ? record->schedule : "1f1b");
    r->recompute =
        word_of(r, "recomputes", record->recompute[0] != '\0' ? record->recompute : recompute);
    if (record->recompute[0] == '\0')
        assume(r, "%s",
               strcmp(recompute, "none") == 0 ? TY_ASSUMED_NO_RECOMPUTE : "blocks recomputed");
    if (r->schedule == NULL)
        give_up(r, "a schedule that is not modelled");
    else if (r->recompute == NULL)
        give_up(r, "a recomputation that is not modelled");
    else if (precision == NULL)
        give_up(r, "a precision that is not modelled");
    else if (is_layout_open(r))
        give_up(r, "layout not stated");
    else if (fabs(rest * r->dp - r->devices) > 0.5)
        give_up(r, "the stated degrees are not the number of devices");
    else if (fmod(r->dp, r->ep) > 0)
        give_up(r, "expert groups across context ranks");
    if (record->dtype[0] == '\0' && precision[0] != '\0')
        assume(r, "%s", precision);
    if (precision != NULL)
        snprintf(r->out->precision, sizeof r->out->precision, "%s",
                 precision[0] != '\0' ? precision : "bf16");
}

static void read_batch(reading *r)
{
    const double accumulated = number(r, "batch.grad_accum", 0);
    const double tokens = number(r, "batch.tokens", 0);
    double pass = number(r, "batch.per_gpu_micro", 0);
    double per_device = number(r, "batch.per_gpu", 0);

    if (pass > LARGEST_PASS && accumulated > 0)
        pass = floor(pass / accumulated);
    if (!(per_device > 0))
        per_device = pass * fmax(1, accumulated);
    r->micro = number(r, "batch.micro", pass > 0 || r->pp > 1 ? pass : per_device);
    if (r->pp > 1 && ty_find_flag(r->software, "local_batch", false)) {
        r->micro = 1;
        assume(r, "micro-batches of one sequence");
    }
    r->batch = number(r, "batch.global", floor(per_device * r->devices));
    if (!(r->batch >= 1) && r->sequence > 0)
        r->batch = floor(tokens / r->sequence);
    if (!(r->batch >= 1) && r->micro >= 1) {
        r->batch = r->micro * r->dp * fmax(1, accumulated);
        assume(r, "one pass a step");
    }
    if (!(r->micro >= 1) && accumulated > 0)
        r->micro = floor(r->batch / (accumulated * r->dp));
    if (!(r->batch >= 1 && r->batch <= LARGEST))
        give_up(r, "global batch not stated");
    else if (r->dp > r->batch && !has(r, "parallel.dp")) {
        /* Fewer sequences than devices: CP splits each sequence. */
        r->cp *= ceil(r->dp / r->batch);
        r->dp = r->devices / (r->tp * r->cp * r->pp);
        assume(r, "cp %.0f", r->cp);
    }
    if (r->reason[0] == '\0' && r->micro >= 1 && fmod(r->batch, r->dp * r->micro) > 0)
        give_up(r, "data x micro-batch does not divide the global batch");
    if (!(r->micro >= 1))
        assume(r, "the fastest micro-batch that fits");
}

static void write_layout(const reading *r)
{
    char *fix = r->out->fix;
    const char *sharded = ty_find_text(r->software, "sharded_stack");

    ty_row_question_add(fix, "tp=%.0f,cp=%.0f,ep=%.0f,pp=%.0f,dp=%.0f,sp=%d,zero=%.0f,recompute=%s",
                        r->tp, r->cp, r->ep, r->pp, r->dp / r->ep, r->sequence_parallel,
                        r->dp * r->cp > 1 ? r->zero : 0, r->recompute);
    if (r->pp > 1)
        ty_row_question_add(fix, ",schedule=%s",
                            r->virtual_stages > 1 ? "interleaved" : r->schedule);
    if (r->virtual_stages > 1)
        ty_row_question_add(fix, ",vpp=%.0f", r->virtual_stages);
    if (r->micro >= 1)
        ty_row_question_add(fix, ",micro_batch=%.0f", r->micro * r->ep);
    if (r->dp * r->cp > 1)
        ty_row_question_add(fix, ",compression=none");
    r->out->global_batch = (uint32_t)r->batch;
    snprintf(r->out->stack, sizeof r->out->stack, "%s",
             r->zero >= 3 && sharded[0] != '\0' ? sharded : ty_find_text(r->software, "stack"));
    if (!has(r, "parallel.zero") && !(r->pp > 1) && !(usual(r, "zero") > 0))
        snprintf(r->out->sharded_stack, sizeof r->out->sharded_stack, "%s", sharded);
}

/* ---- The measured time ---------------------------------------------------------------------- */

/* Flop per step, forward and backward: 2 and 4 per product parameter and token, plus the two
 * products of unmasked attention. Source: Narayanan et al. 2021, appendix. */
static double model_flop(const reading *r)
{
    const double head = r->head_size > 0 ? r->head_size : r->hidden / r->heads;
    const double kv = r->kv_heads > 0 ? r->kv_heads : r->heads;
    const double matrices = r->is_gated ? 3 : 2;
    const double with = r->experts > 0 ? r->layers - r->dense_layers : 0;
    const double attention = 2 * r->hidden * head * (r->heads + kv);
    const double dense = matrices * r->hidden * r->ffn;
    const double sparse =
        matrices * r->hidden * (r->chosen * r->expert_ffn + r->shared_ffn) + r->hidden * r->experts;
    const double scores = 2 * r->sequence * r->heads * head;

    return 6 * r->batch * r->sequence *
           (r->layers * (attention + scores) + (r->layers - with) * dense + with * sparse +
            r->vocabulary * r->hidden);
}

/* Step time in seconds; 0 if the metric does not determine it. */
static double measured_step_s(const reading *r)
{
    const double value = r->record->value;
    const double tokens = r->batch * r->sequence;
    /* Counts flop from sizes. */
    const double flop = r->words[0] == '\0' ? model_flop(r) : 0;
    const double made_again = strcmp(r->recompute, "full") == 0 ? WITH_RECOMPUTE : 1;
    const struct {
        const char *metric;
        double work, unit, devices; /* the metric: work / unit / devices, per second */
    } rates[] = {{"tokens_per_s", tokens, 1, 1},
                 {"tokens_per_s_per_gpu", tokens, 1, r->devices},
                 {"sequences_per_s", r->batch, 1, 1},
                 {"samples_per_s", r->batch, 1, 1},
                 {"samples_per_s_per_gpu", r->batch, 1, r->devices},
                 {"achieved_tflops_per_gpu", flop * made_again, 1e12, r->devices},
                 {"model_tflops_per_gpu", flop, 1e12, r->devices}};

    if (strcmp(r->record->metric, "iteration_time") == 0)
        return value;
    if (strcmp(r->record->metric, "time_to_train") == 0 && strcmp(r->record->unit, "min") == 0) {
        const double steps = ty_record_also_measured(r->record, "steps_to_target_derived");
        return steps > 0 ? value * SECONDS_PER_MINUTE / steps : 0;
    }
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (strcmp(rates[i].metric, r->record->metric) == 0)
            return rates[i].work / (value * rates[i].unit * rates[i].devices);
    return 0;
}

void ty_ask_language_model(const ty_json *names, const ty_record *record, ty_row_question *out,
                           char reason[TY_SKIP_REASON_SIZE])
{
    const bool is_time = strcmp(record->metric, "time_to_train") == 0;
    reading r = {.names = names,
                 .software = ty_names_row(names, "language_stacks", record),
                 .record = record,
                 .out = out,
                 .reason = reason};

    *out = (ty_row_question){.workload = ""};
    reason[0] = '\0';
    if (r.software == NULL) {
        give_up(&r, "no stack for this device and software");
        return;
    }
    read_model(&r);
    write_cluster(&r);
    if (reason[0] == '\0')
        read_layout(&r);
    if (reason[0] == '\0')
        read_batch(&r);
    if (reason[0] != '\0')
        return;
    write_model(&r);
    write_layout(&r);
    out->measured_step_s = measured_step_s(&r);
    if (is_time)
        assume(&r, "the measured number of steps, evaluation not counted");
    if (!(out->measured_step_s > 0))
        give_up(&r, is_time ? "number of steps to the target not stated"
                            : "a measure that is not the time of a step");
}
