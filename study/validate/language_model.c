/* Records of language models as questions. */
#include "asked.h"
#include "published.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LARGEST 1048576.0 /* of a size that is believed */
#define USUAL_VOCABULARY 51200
#define HEAD_SIZE 128.0 /* of heads whose number is not stated */
/* Model flop as Narayanan et al. 2021 count them, with recomputation 4/3 of it. */
#define WITH_RECOMPUTE (4.0 / 3.0)

typedef struct reading {
    const ty_record *record;
    const ty_published_software *software;
    ty_asked *out;
    char *reason;
    /* The model. */
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

/* ---- The model ---------------------------------------------------------------------------------
 */

static void read_model(reading *r)
{
    const char *family = r->record->model_family;
    const char *attention = ty_record_text(r->record, "model", "attention");

    r->layers = number(r, "model", "layers", 0);
    r->hidden = number(r, "model", "hidden", 0);
    r->sequence = number(r, "model", "seq", 0);
    r->heads = number(r, "model", "heads", 0);
    if (!(r->heads > 0)) { /* of 128, or of 64 where tensor parallelism could not divide those */
        const double tp = fmax(1, ty_record_number(r->record, "parallel", "tp"));
        r->heads = floor(r->hidden / HEAD_SIZE);
        if (fmod(r->heads, tp) > 0)
            r->heads = floor(r->hidden / (HEAD_SIZE / 2));
        assume(r, fmod(r->hidden, r->heads * HEAD_SIZE) > 0 ? "heads of 64" : "heads of 128");
    }
    r->kv_heads = number(r, "model", "kv_heads", 0);
    r->head_size = number(r, "model", "head_size", 0);
    r->vocabulary = number(r, "model", "vocab", 0);
    if (!(r->vocabulary > 0)) {
        r->vocabulary = USUAL_VOCABULARY;
        assume(r, "a vocabulary of 51,200");
    }
    r->experts = number(r, "model", "experts", 0);
    r->chosen = number(r, "model", "experts_per_token", 0);
    r->ffn = number(r, "model", "ffn", 0);
    r->expert_ffn = number(r, "model", "moe_ffn", r->ffn);
    r->shared_ffn = number(r, "model", "shared_experts", 0) * r->expert_ffn;
    r->dense_layers = number(r, "model", "dense_layers", 0);
    r->is_gated = ty_record_flag(r->record, "model", "gated", r->experts > 0);
    if (!(r->ffn > 0))
        r->ffn = r->experts > 0 ? r->expert_ffn : 4 * r->hidden;
    if (strcmp(family, "gpt") != 0 && strcmp(family, "moe-gpt") != 0)
        give_up(r, "not a decoder of equal layers");
    else if (attention[0] != '\0' && strcmp(attention, "gqa") != 0)
        give_up(r, "attention whose sizes are not stated");
    else if (!(r->layers > 0 && r->hidden > 0 && r->sequence > 0))
        give_up(r, "layers, hidden size or sequence not stated");
    else if (r->experts > 0 && !(r->chosen > 0))
        give_up(r, "experts of a token not stated");
}

static void write_model(const reading *r)
{
    char *w = r->out->workload;

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

static void write_cluster(reading *r)
{
    const double inside = rate_of(r, "intra_node", "GBps_per_gpu_per_direction");
    const double outside = rate_of(r, "inter_node", "GBps_per_node");
    double hosts;

    r->devices = r->record->gpus;
    r->per_host = r->record->gpus_per_node >= 1 ? r->record->gpus_per_node : r->devices;
    if (r->per_host > r->devices)
        r->per_host = r->devices;
    hosts = ceil(r->devices / fmax(1, r->per_host));
    if (!(r->devices >= 1))
        give_up(r, "number of devices not stated");
    else if (r->per_host > 1 && !(inside > 0))
        give_up(r, "links inside the host not stated");
    else if (hosts > 1 && !(outside > 0))
        give_up(r, "network between the hosts not stated");
    else if (fabs(hosts * r->per_host - r->devices) > 0.5)
        give_up(r, "hosts that are not full");
    add(r->out->cluster, "host:%.0f gpu:%.0f @%s %s", hosts, r->per_host, r->software->device,
        r->software->inside);
    if (inside > 0)
        add(r->out->cluster, "=%.10gGB/s", inside / 1e9);
    add(r->out->cluster, " %s", r->software->network);
    if (outside > 0)
        add(r->out->cluster, "=%.10gGB/s", outside / 1e9 / r->per_host);
}

/* ---- The layout --------------------------------------------------------------------------------
 */

typedef struct word {
    const char *published, *ours;
} word;

static const word schedules[] = {{"1f1b", "1f1b"},        {"interleaved-1f1b", "1f1b"},
                                 {"interleaved", "1f1b"}, {"gpipe", "gpipe"},
                                 {"zb-1p", "zb-h1"},      {"zb-h1", "zb-h1"}};
static const word recomputes[] = {{"none", "none"},
                                  {"selective", "selective"},
                                  {"selective-attention", "selective"},
                                  {"full", "full"}};
static const word precisions[] = {
    {"", "bf16"}, {"fp16", "fp16"}, {"bf16", "bf16"}, {"fp32", "fp32"}};

static const char *word_of(const char *published, const word *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i].published, published) == 0)
            return words[i].ours;
    return NULL;
}
#define WORD_OF(published, words) word_of(published, words, sizeof(words) / sizeof *(words))

static void read_layout(reading *r)
{
    const ty_record *record = r->record;
    const char *precision = WORD_OF(record->dtype, precisions);
    double rest;

    r->tp = number(r, "parallel", "tp", 1);
    r->cp = number(r, "parallel", "cp", 1);
    r->ep = number(r, "parallel", "ep", 1);
    r->pp = number(r, "parallel", "pp", 1);
    r->interleave = number(r, "parallel", "interleave", 1);
    rest = r->tp * r->cp * r->pp;
    r->dp = number(r, "parallel", "dp", floor(r->devices / rest));
    r->zero = ty_record_has(record, "parallel", "zero")
                  ? ty_record_number(record, "parallel", "zero")
                  : r->software->zero;
    r->sequence_parallel = r->tp > 1 && ty_record_flag(record, "parallel", "sequence_parallel",
                                                       r->software->sequence_parallel);
    r->schedule = WORD_OF(record->schedule[0] != '\0' ? record->schedule : "1f1b", schedules);
    r->recompute = WORD_OF(record->recompute[0] != '\0' ? record->recompute : "none", recomputes);
    if (r->recompute == NULL && strcmp(record->recompute, "selective-op") == 0)
        r->recompute = "operator";
    if (record->recompute[0] == '\0')
        assume(r, "nothing recomputed");
    if (r->schedule == NULL)
        give_up(r, "a schedule that is not modelled");
    else if (r->recompute == NULL)
        give_up(r, "a recomputation that is not modelled");
    else if (precision == NULL)
        give_up(r, "a precision that is not modelled");
    else if (ty_record_number(record, "parallel", "model_parallel") > 0 &&
             !ty_record_has(record, "parallel", "tp"))
        give_up(r, "tensor and pipeline degrees not told apart");
    else if (fabs(rest * r->dp - r->devices) > 0.5)
        give_up(r, "the stated degrees are not the number of devices");
    else if (fmod(r->dp, r->ep) > 0)
        give_up(r, "expert groups across context ranks");
    if (precision != NULL)
        snprintf(r->out->precision, sizeof r->out->precision, "%s", precision);
}

static void read_batch(reading *r)
{
    const double per_device = number(r, "batch", "per_gpu", 0);
    const double accumulated = number(r, "batch", "grad_accum", 0);
    const double tokens = number(r, "batch", "tokens", 0);

    r->batch = number(r, "batch", "global", floor(per_device * r->devices));
    if (!(r->batch >= 1) && r->sequence > 0)
        r->batch = floor(tokens / r->sequence);
    r->micro = number(r, "batch", "micro", r->pp > 1 ? 0 : per_device);
    if (!(r->micro >= 1) && accumulated > 0)
        r->micro = floor(r->batch / (accumulated * r->dp));
    if (!(r->batch >= 1 && r->batch <= LARGEST))
        give_up(r, "global batch not stated");
    else if (r->micro >= 1 && fmod(r->batch, r->dp * r->micro) > 0)
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
    if (strcmp(metric, "tokens_per_s_per_gpu") == 0)
        return samples * r->sequence / (value * r->devices);
    if (strcmp(metric, "tokens_per_s") == 0)
        return samples * r->sequence / value;
    if (strcmp(metric, "sequences_per_s") == 0 || strcmp(metric, "samples_per_s") == 0)
        return samples / value;
    if (strcmp(metric, "samples_per_s_per_gpu") == 0)
        return samples / (value * r->devices);
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
    read_model(&r);
    write_cluster(&r);
    if (reason[0] == '\0')
        read_layout(&r);
    if (reason[0] == '\0')
        read_batch(&r);
    if (reason[0] != '\0')
        return TY_OK;
    write_model(&r);
    write_layout(&r);
    snprintf(out->stack, sizeof out->stack, "%s", software.stack);
    out->measured_step_s = measured_step_s(&r);
    if (!(out->measured_step_s > 0))
        give_up(&r, "a measure that is not the time of a step");
    return TY_OK;
}
