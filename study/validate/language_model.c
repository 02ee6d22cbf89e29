/* Records of language models as questions. */
#include "asked.h"
#include "published.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 1048576.0 /* of a size that is believed */
#define USUAL_VOCABULARY 51200
#define BERT_VOCABULARY 30522
#define BERT_TYPES 2
/* How far a number of equal layers may be from a stated number of parameters. */
#define SIZE_TOLERANCE 0.025
#define LARGEST_PASS 512.0 /* sequences; a larger "batch per device" is that of a step */
#define MOST_IN_HOST 8.0   /* tensor ranks of a model-parallel degree that is not told apart */
#define SECONDS_PER_MINUTE 60.0
/* Model flop as Narayanan et al. 2021 count them, with recomputation 4/3 of it. */
#define WITH_RECOMPUTE (4.0 / 3.0)

typedef struct reading {
    const ty_record *record;
    const ty_published_software *software;
    ty_asked *out;
    char *reason;
    /* The model. */
    char words[TY_ASKED_SIZE]; /* of the workload where its name tells it; "": by its sizes */
    double layers, hidden, heads, kv_heads, head_size, ffn, vocabulary, sequence;
    double experts, chosen, expert_ffn, shared_ffn, dense_layers;
    bool is_gated;
    /* The layout. */
    double devices, per_host, tp, cp, ep, pp, dp, interleave, micro, batch;
    const char *schedule, *recompute;
    double zero;
    bool sequence_parallel;
} reading;

static void give_up(const reading *r, const char *why)
{
    if (r->reason[0] == '\0')
        snprintf(r->reason, TY_SKIP_REASON_SIZE, "%s", why);
}

static void add(char out[TY_ASKED_SIZE], const char *format, ...) TY_PRINTF(2, 3);
static void add(char out[TY_ASKED_SIZE], const char *format, ...)
{
    const size_t length = strlen(out);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(out + length, TY_ASKED_SIZE - length, format, arguments);
    va_end(arguments);
}

static void assume(const reading *r, const char *what)
{
    add(r->out->assumed, "%s%s", r->out->assumed[0] != '\0' ? ", " : "", what);
}

/* A figure of the record, or another where it is not stated; a text in its place is no figure. */
static double number(const reading *r, const char *member, const char *key, double otherwise)
{
    const double value = ty_record_number(r->record, member, key);

    if (ty_record_text(r->record, member, key)[0] != '\0') {
        char why[96];
        snprintf(why, sizeof why, "%.60s is stated in words", key);
        give_up(r, why);
    }
    return value > 0 ? value : otherwise;
}

static void assume_number(const reading *r, const char *what, double value)
{
    add(r->out->assumed, "%s%s of %.10g", r->out->assumed[0] != '\0' ? ", " : "", what, value);
}

/* ---- The model ---------------------------------------------------------------------------------
 */

static bool is_family(const reading *r, const char *family)
{
    return strcmp(r->record->model_family, family) == 0;
}

/* Heads of the usual sizes, so many that they divide the width and tensor ranks divide them. */
static void guess_heads(reading *r)
{
    static const double sizes[] = {128, 64, 96, 120};
    const double tp = fmax(1, ty_record_number(r->record, "parallel", "tp"));

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        r->heads = floor(r->hidden / sizes[i]);
        if (fmod(r->hidden, sizes[i]) > 0 || fmod(r->heads, tp) > 0)
            continue;
        assume_number(r, "heads", sizes[i]);
        return;
    }
    give_up(r, "heads not stated, and none of the usual sizes divide the width");
}

/* Layers of a model of which a table says "52B": so many a stage that the size comes out. */
static void guess_layers(reading *r)
{
    const double size = 1e9 * strtod(ty_record_text(r->record, "model", "size_label"), NULL);
    const double stages = fmax(1, ty_record_number(r->record, "parallel", "pp"));
    const double layer = 12 * r->hidden * r->hidden, rest = r->vocabulary * r->hidden;

    r->layers = stages * fmax(1, round((size - rest) / layer / stages));
    if (!(fabs((r->layers * layer + rest) / size - 1) < SIZE_TOLERANCE)) {
        give_up(r, "no whole number of layers a stage has the stated size");
        return;
    }
    add(r->out->assumed, "%s%.0f layers by the stated size", r->out->assumed[0] != '\0' ? ", " : "",
        r->layers);
}

static void read_sizes(reading *r)
{
    const char *attention = ty_record_text(r->record, "model", "attention");

    r->layers = number(r, "model", "layers", 0);
    r->hidden = number(r, "model", "hidden", r->software->hidden);
    r->vocabulary = number(r, "model", "vocab", 0);
    if (!(r->vocabulary > 0)) {
        r->vocabulary = is_family(r, "bert") ? BERT_VOCABULARY : USUAL_VOCABULARY;
        assume(r, is_family(r, "bert") ? "a vocabulary of 30,522" : "a vocabulary of 51,200");
    }
    if (!(r->layers > 0) && r->hidden > 0 && ty_record_has(r->record, "model", "size_label"))
        guess_layers(r);
    r->heads = number(r, "model", "heads", 0);
    if (!(r->heads > 0) && r->hidden > 0)
        guess_heads(r);
    r->kv_heads = number(r, "model", "kv_heads", 0);
    r->head_size = number(r, "model", "head_size", 0);
    r->experts = number(r, "model", "experts", 0);
    r->chosen = number(r, "model", "experts_per_token", 0);
    r->ffn = number(r, "model", "ffn", 0);
    r->expert_ffn = number(r, "model", "moe_ffn", r->ffn);
    r->shared_ffn = number(r, "model", "shared_experts", 0) * r->expert_ffn;
    r->dense_layers = number(r, "model", "dense_layers", 0);
    r->is_gated = ty_record_flag(r->record, "model", "gated", r->experts > 0);
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

/* Whether adapters were trained, and the words are those of the whole model. */
static bool is_adapter_training(const reading *r)
{
    return strstr(r->words, "has_frozen_matrices") == NULL &&
           (strstr(r->record->model, "LoRA") != NULL || strstr(r->record->id, "lora") != NULL);
}

static ty_status read_model(reading *r, ty_error *error)
{
    const ty_record *record = r->record;
    const char *variant = ty_record_text(record, "model", "variant");
    ty_published_model known;
    ty_status status = ty_published_language_model(record, &known, error);

    if (status != TY_OK)
        return status;
    if (known.is_whole || !ty_record_has(record, "model", "hidden") ||
        !ty_record_has(record, "model", "vocab"))
        snprintf(r->words, sizeof r->words, "%s", known.words);
    r->sequence = number(r, "model", "seq", 0);
    if (is_family(r, "bert") && !(r->sequence > 0)) /* Devlin et al. 2019, appendix A; SQuAD's */
        known.sequence = strncmp(variant, "Pre", 3) == 0 ? 128 : 384;
    if (!(r->sequence > 0) && known.sequence > 0) {
        r->sequence = known.sequence;
        assume_number(r, "sequences", r->sequence);
    }
    if (known.tokens > 0) {
        r->sequence = known.tokens;
        add(r->out->assumed, "%s%.0f tokens of a sample are not padding",
            r->out->assumed[0] != '\0' ? ", " : "", known.tokens);
    }
    if (is_adapter_training(r))
        give_up(r, "adapters (LoRA) were trained, not the model: its weights have no gradients");
    if (r->words[0] == '\0')
        read_sizes(r);
    else if (!(r->sequence > 0))
        give_up(r, "sequence not stated");
    else
        assume(r, "sizes by the model's name");
    return TY_OK;
}

static void write_model(const reading *r)
{
    char *w = r->out->workload;

    if (r->words[0] != '\0') {
        add(w, "%s sequence=%.0f", r->words, r->sequence);
        return;
    }
    if (is_family(r, "bert")) {
        add(w,
            "encoder blocks=%.0f features=%.0f heads=%.0f hidden_features=%.0f vocabulary=%.0f "
            "sequence=%.0f positions=%.0f token_types=%d head=masked",
            r->layers, r->hidden, r->heads, r->ffn, r->vocabulary, r->sequence,
            fmax(512, r->sequence), BERT_TYPES);
        return;
    }
    add(w, "%s blocks=%.0f features=%.0f heads=%.0f", r->is_gated ? "decoder" : "transformer",
        r->layers, r->hidden, r->heads);
    if (r->kv_heads > 0)
        add(w, " kv_heads=%.0f", r->kv_heads);
    if (r->head_size > 0)
        add(w, " head_size=%.0f", r->head_size);
    add(w, " hidden_features=%.0f vocabulary=%.0f sequence=%.0f", r->ffn, r->vocabulary,
        r->sequence);
    if (!r->is_gated)
        add(w, " positions=%.0f", r->sequence);
    if (r->experts > 0)
        add(w, " experts=%.0f experts_per_token=%.0f expert_features=%.0f", r->experts, r->chosen,
            r->expert_ffn);
    if (r->shared_ffn > 0)
        add(w, " shared_features=%.0f", r->shared_ffn);
    if (r->experts > 0 && r->dense_layers > 0)
        add(w, " dense_blocks=%.0f", r->dense_layers);
}

/* ---- The cluster -------------------------------------------------------------------------------
 */

static double rate_of(const reading *r, const char *link, const char *key)
{
    return 1e9 * ty_record_nested(r->record, "cluster", link, key);
}

/* Equal hosts, none larger than stated: of 256 devices in racks of 72, four of 64. */
static void read_hosts(reading *r)
{
    double stated = r->record->gpus_per_node >= 1 ? r->record->gpus_per_node : r->devices;

    if (r->software->pod > 0)
        stated = r->software->pod;
    r->per_host = fmax(1, floor(fmin(stated, r->devices)));
    while (fmod(r->devices, r->per_host) > 0)
        r->per_host--;
    if (!(r->software->pod > 0) && r->per_host < fmin(stated, r->devices))
        assume_number(r, "devices a host", r->per_host);
}

/* A slice of chips, as near to a cube as its number divides: factors, the largest first, to the
 * axis that has least. */
static void write_torus(reading *r)
{
    const uint32_t axes = (uint32_t)r->software->torus;
    uint32_t sizes[TY_TORUS_AXES] = {1, 1, 1, 1}, rest = (uint32_t)r->devices, least = UINT32_MAX;

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
    for (uint32_t i = 0; i < axes; i++)
        least = sizes[i] < least ? sizes[i] : least;
    add(r->out->cluster, "%s", least >= r->software->closed_from ? "torus" : "mesh");
    for (uint32_t i = 0; i < axes; i++)
        add(r->out->cluster, "%s%u", i == 0 ? ":" : "x", sizes[i]);
    add(r->out->cluster, " @%s %s", r->software->device, r->software->network);
    add(r->out->assumed, "%sa slice of ", r->out->assumed[0] != '\0' ? ", " : "");
    for (uint32_t i = 0; i < axes; i++)
        add(r->out->assumed, "%s%u", i == 0 ? "" : "x", sizes[i]);
}

static void write_cluster(reading *r)
{
    const double inside = rate_of(r, "intra_node", "GBps_per_gpu_per_direction");
    const double outside = rate_of(r, "inter_node", "GBps_per_node");
    double hosts;

    r->devices = r->record->gpus;
    if (!(r->devices >= 1)) {
        give_up(r, "number of devices not stated");
        return;
    }
    if (r->software->torus > 0 && r->devices > 1) {
        write_torus(r);
        return;
    }
    read_hosts(r);
    hosts = r->devices / r->per_host;
    add(r->out->cluster, "host:%.0f gpu:%.0f @%s %s", hosts, r->per_host, r->software->device,
        r->software->inside);
    if (inside > 0)
        add(r->out->cluster, "=%.10gGB/s", inside / 1e9);
    else if (r->per_host > 1)
        add(r->out->assumed, "%s%s inside", r->out->assumed[0] != '\0' ? ", " : "",
            r->software->inside);
    add(r->out->cluster, " %s", r->software->network);
    if (outside > 0)
        add(r->out->cluster, "=%.10gGB/s", outside / 1e9 / r->per_host);
    else if (hosts > 1)
        add(r->out->assumed, "%s%s a device between hosts", r->out->assumed[0] != '\0' ? ", " : "",
            r->software->network);
}

/* ---- The layout --------------------------------------------------------------------------------
 */

typedef struct word {
    const char *published, *ours;
} word;

static const word schedules[] = {
    {"1f1b", "1f1b"},   {"interleaved-1f1b", "1f1b"}, {"interleaved", "1f1b"}, {"gpipe", "gpipe"},
    {"zb-1p", "zb-h1"}, {"zb-h1", "zb-h1"},           {"zb-2p", "zb-2p"}};
static const word recomputes[] = {{"none", "none"},
                                  {"selective", "selective"},
                                  {"selective-attention", "selective"},
                                  {"selective-op", "operator"},
                                  {"full", "full"}};
static const word precisions[] = {{"", "bf16"},
                                  {"fp16", "fp16"},
                                  {"bf16", "bf16"},
                                  {"fp32", "fp32"},
                                  {"tf32", "tf32"},
                                  {"te bf16", "bf16"},
                                  {"amp-fp16", "fp16"},
                                  {"fp8", "fp8"},
                                  {"mxfp8", "fp8"},
                                  {"fp8-mx", "fp8"},
                                  {"fp8-cs", "fp8"},
                                  {"fp8_full", "fp8"},
                                  {"fp8 (other scaling granularity)", "fp8"},
                                  {"te fp8", "fp8"},
                                  {"te-fp8", "fp8"},
                                  {"bf16+float8-linear", "fp8"},
                                  {"nvfp4", "fp4"}};

static const char *word_of(const char *published, const word *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i].published, published) == 0)
            return words[i].ours;
    return NULL;
}
#define WORD_OF(published, words) word_of(published, words, sizeof(words) / sizeof *(words))

/* One degree for both: tensor ranks inside a host, as many as it takes, stages for the rest. */
static void split_model_parallel(reading *r)
{
    const double together = ty_record_number(r->record, "parallel", "model_parallel");

    if (!(together > 1))
        return;
    r->tp = fmin(MOST_IN_HOST, together);
    while (fmod(together, r->tp) > 0)
        r->tp--;
    r->pp = together / r->tp;
    add(r->out->assumed, "%stp %.0f, pp %.0f", r->out->assumed[0] != '\0' ? ", " : "", r->tp,
        r->pp);
}

/* Decoders on several devices have no usual layout, unless a recipe's software shards everything;
 * submissions are tuned by hand. */
static bool is_layout_open(const reading *r)
{
    const bool is_recipe = strcmp(r->record->kind, "training-speed") == 0;

    return r->devices > 1 && !(is_recipe && r->software->zero >= 3) && !is_family(r, "bert") &&
           !is_family(r, "t5") && !ty_record_has(r->record, "parallel", "dp") &&
           !ty_record_has(r->record, "parallel", "tp") &&
           !ty_record_has(r->record, "parallel", "pp");
}

static void read_layout(reading *r)
{
    const ty_record *record = r->record;
    const char *precision = WORD_OF(record->dtype, precisions);
    const char *usual = r->software->recompute[0] != '\0' ? r->software->recompute : "none";
    double rest;

    r->tp = number(r, "parallel", "tp", 1);
    r->cp = number(r, "parallel", "cp", 1);
    r->ep = number(r, "parallel", "ep", 1);
    r->pp = number(r, "parallel", "pp", 1);
    if (!ty_record_has(record, "parallel", "tp"))
        split_model_parallel(r);
    r->interleave = number(r, "parallel", "interleave", 1);
    if (!ty_record_has(record, "parallel", "interleave") && record->schedule[0] == '\0' &&
        r->pp > 1 && r->software->interleave > 1) {
        r->interleave = r->software->interleave;
        add(r->out->assumed, "%s%.0f chunks a stage", r->out->assumed[0] != '\0' ? ", " : "",
            r->interleave);
    }
    rest = r->tp * r->cp * r->pp;
    r->dp = number(r, "parallel", "dp", floor(r->devices / rest)) *
            fmax(1, number(r, "parallel", "fsdp", 1));
    r->zero = ty_record_has(record, "parallel", "zero")
                  ? ty_record_number(record, "parallel", "zero")
                  : r->software->zero;
    if (r->zero > 0 && !ty_record_has(record, "parallel", "zero"))
        add(r->out->assumed, "%sZeRO %.0f", r->out->assumed[0] != '\0' ? ", " : "", r->zero);
    r->sequence_parallel = r->tp > 1 && ty_record_flag(record, "parallel", "sequence_parallel",
                                                       r->software->sequence_parallel);
    r->schedule = WORD_OF(record->schedule[0] != '\0' ? record->schedule : "1f1b", schedules);
    r->recompute = WORD_OF(record->recompute[0] != '\0' ? record->recompute : usual, recomputes);
    if (record->recompute[0] == '\0')
        assume(r, strcmp(usual, "none") == 0 ? TY_ASSUMED_NO_RECOMPUTE : "blocks recomputed");
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
    if (record->dtype[0] == '\0' && r->software->precision[0] != '\0') {
        precision = r->software->precision;
        assume(r, precision);
    }
    if (precision != NULL)
        snprintf(r->out->precision, sizeof r->out->precision, "%s", precision);
}

static void read_batch(reading *r)
{
    const double accumulated = number(r, "batch", "grad_accum", 0);
    const double tokens = number(r, "batch", "tokens", 0);
    double pass = number(r, "batch", "per_gpu_micro", 0);
    double per_device = number(r, "batch", "per_gpu", 0);

    if (pass > LARGEST_PASS && accumulated > 0)
        pass = floor(pass / accumulated);
    if (!(per_device > 0))
        per_device = pass * fmax(1, accumulated);
    r->micro = number(r, "batch", "micro", pass > 0 || r->pp > 1 ? pass : per_device);
    if (r->pp > 1 && r->software->is_local_batch) {
        r->micro = 1;
        assume(r, "micro-batches of one sequence");
    }
    r->batch = number(r, "batch", "global", floor(per_device * r->devices));
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
    else if (r->dp > r->batch && !ty_record_has(r->record, "parallel", "dp")) {
        /* Fewer sequences than devices: the tokens of one are divided. */
        r->cp *= ceil(r->dp / r->batch);
        r->dp = r->devices / (r->tp * r->cp * r->pp);
        add(r->out->assumed, "%scp %.0f", r->out->assumed[0] != '\0' ? ", " : "", r->cp);
    }
    if (r->reason[0] == '\0' && r->micro >= 1 && fmod(r->batch, r->dp * r->micro) > 0)
        give_up(r, "data x micro-batch does not divide the global batch");
    if (!(r->micro >= 1))
        assume(r, "the fastest micro-batch that fits");
}

static void write_layout(const reading *r)
{
    char *fix = r->out->fix;

    add(fix, "tp=%.0f,cp=%.0f,ep=%.0f,pp=%.0f,dp=%.0f,sp=%d,zero=%.0f,recompute=%s", r->tp, r->cp,
        r->ep, r->pp, r->dp / r->ep, r->sequence_parallel, r->dp * r->cp > 1 ? r->zero : 0,
        r->recompute);
    if (r->pp > 1)
        add(fix, ",schedule=%s", r->interleave > 1 ? "interleaved" : r->schedule);
    if (r->interleave > 1)
        add(fix, ",interleave=%.0f", r->interleave);
    if (r->micro >= 1)
        add(fix, ",micro_batch=%.0f", r->micro * r->ep);
    if (r->dp * r->cp > 1)
        add(fix, ",compression=none");
    r->out->global_batch = (uint32_t)r->batch;
}

/* ---- What was measured -------------------------------------------------------------------------
 */

/* Flop of a step, forward and backward: 2 and 4 for each parameter of a product and token, and the
 * two products of attention, not masked. Source: Narayanan et al. 2021, appendix. */
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

static double measured_step_s(const reading *r)
{
    const char *metric = r->record->metric;
    const double value = r->record->value, samples = r->batch;

    if (strcmp(metric, "iteration_time") == 0)
        return value;
    if (strcmp(metric, "time_to_train") == 0 && strcmp(r->record->unit, "min") == 0) {
        const double steps = ty_record_also_measured(r->record, "steps_to_target_derived");
        return steps > 0 ? value * SECONDS_PER_MINUTE / steps : 0;
    }
    if (strcmp(metric, "tokens_per_s_per_gpu") == 0)
        return samples * r->sequence / (value * r->devices);
    if (strcmp(metric, "tokens_per_s") == 0)
        return samples * r->sequence / value;
    if (strcmp(metric, "sequences_per_s") == 0 || strcmp(metric, "samples_per_s") == 0)
        return samples / value;
    if (strcmp(metric, "samples_per_s_per_gpu") == 0)
        return samples / (value * r->devices);
    if (r->words[0] != '\0')
        return 0; /* flop are counted from sizes, below */
    if (strcmp(metric, "achieved_tflops_per_gpu") == 0)
        return model_flop(r) * (strcmp(r->recompute, "full") == 0 ? WITH_RECOMPUTE : 1) /
               (value * 1e12 * r->devices);
    if (strcmp(metric, "model_tflops_per_gpu") == 0)
        return model_flop(r) / (value * 1e12 * r->devices);
    return 0;
}

ty_status ty_ask_language_model(const ty_record *record, ty_asked *out,
                                char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    ty_published_software software;
    reading r = {.record = record, .software = &software, .out = out, .reason = reason};
    ty_status status = ty_published_software_of(record, &software, error);

    *out = (ty_asked){.workload = ""};
    reason[0] = '\0';
    if (status != TY_OK)
        return status;
    if (software.stack[0] == '\0')
        give_up(&r, "no stack for this device and software");
    status = read_model(&r, error);
    if (status != TY_OK)
        return status;
    write_cluster(&r);
    if (reason[0] == '\0')
        read_layout(&r);
    if (reason[0] == '\0')
        read_batch(&r);
    if (reason[0] != '\0')
        return TY_OK;
    write_model(&r);
    write_layout(&r);
    snprintf(out->stack, sizeof out->stack, "%s",
             r.zero >= 3 && software.sharded_stack[0] != '\0' ? software.sharded_stack
                                                              : software.stack);
    if (!ty_record_has(record, "parallel", "zero") && !(r.pp > 1) && !(software.zero > 0))
        snprintf(out->sharded_stack, sizeof out->sharded_stack, "%s", software.sharded_stack);
    out->measured_step_s = measured_step_s(&r);
    if (strcmp(record->metric, "time_to_train") == 0)
        assume(&r, "the measured number of steps, evaluation not counted");
    if (!(out->measured_step_s > 0))
        give_up(&r, strcmp(record->metric, "time_to_train") == 0
                        ? "number of steps to the target not stated"
                        : "a measure that is not the time of a step");
    return TY_OK;
}
