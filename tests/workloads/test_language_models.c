/* The language models of the zoo: parameter counts exactly as published, flop against closed forms
 * of the papers, and the time to open them. */
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <time.h>

static ty_workload *open_one(const char *name)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(name, &w, &error), TY_OK, "%s: %s", name, error.message);
    return w;
}

static uint64_t parameters(const ty_workload *w)
{
    return ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
}

/* Model cards on huggingface.co (the count of the weights), and the papers named in the files. */
Test(language_models, parameter_counts)
{
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"gpt2", 124439808},
        {"gpt2-medium", 354823168},
        {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},
        {"gpt3-175b", 174604259328},
        /* 12 x 2048^2 + 13 x 2048 per block, 33,024 rows of tokens and positions, the last norm. */
        {"gpipe-transformer-24", 24 * 50358272ULL + 33024 * 2048 + 4096},
        {"gpipe-transformer-48", 48 * 50358272ULL + 33024 * 2048 + 4096},
        {"bert-base", 109482240},
        {"bert-large", 335141888},
        {"bert-base-mlm", 109514298},
        {"bert-large-mlm", 335174458},
        {"llama-2-7b", 6738415616},
        {"llama-2-13b", 13015864320},
        {"llama-2-70b", 68976648192},
        {"llama-3-8b", 8030261248},
        {"llama-3-70b", 70553706496},
        {"llama-3.1-8b", 8030261248},
        {"llama-3.1-70b", 70553706496},
        {"llama-3.1-405b", 405853388800},
        {"mixtral-8x7b", 46702792704},
        {"mixtral-8x22b", 140620634112},
        {"deepseek-v3", 671026419200},
        {"qwen3-8b", 8190735360},
        {"qwen3-32b", 32762123264},
        {"qwen3-30b-a3b", 30532122624},
        {"qwen3-235b-a22b", 235093634560},
        {"t5-small", 60506624},
        {"t5-base", 222903552},
        {"t5-large", 737668096},
        {"t5-3b", 2851598336},
        {"t5-11b", 11307321344},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        cr_expect_eq(parameters(w), rows[i].parameters, "%s: %llu", rows[i].name,
                     (unsigned long long)parameters(w));
        ty_workload_free(w);
    }
}

/* The same against a file of counts, if it is next to the project. */
Test(language_models, parameter_counts_of_the_data)
{
    static const char path[] = TY_SHARED_DATA "/workloads/hf-facts/expected-parameter-counts.json";
    ty_json_document *document = NULL;
    ty_error error = {0};
    const ty_json *root;
    uint32_t compared = 0;

    if (!ty_file_exists(path))
        cr_skip_test("%s is not there", path);
    cr_assert_eq(ty_json_load(path, &document, &error), TY_OK, "%s", error.message);
    root = ty_json_root(document);
    for (size_t i = 0; i < ty_json_size(root); i++) {
        const ty_json *value = ty_json_at(root, i);
        char name[64];
        uint64_t expected;
        ty_workload *w;
        if (strstr(ty_json_key(value), "active") != NULL)
            continue;
        /* "bert-base-uncased (with pooler, ...)" */
        snprintf(name, sizeof name, "%.*s", (int)strcspn(ty_json_key(value), " "),
                 ty_json_key(value));
        if (strstr(name, "-uncased") != NULL)
            *strstr(name, "-uncased") = '\0';
        cr_assert_eq(ty_json_as_uint64(value, 1, UINT64_MAX, &expected, &error), TY_OK);
        w = open_one(name);
        cr_expect_eq(parameters(w), expected, "%s: %llu", name, (unsigned long long)parameters(w));
        ty_workload_free(w);
        compared++;
    }
    cr_expect_geq(compared, 19);
    ty_json_free(document);
}

/* Narayanan et al., arXiv:2104.04473: parameters 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)), to
 * which the last norm adds 2 h; flop of an iteration without recomputation (Korthikanti et al.,
 * arXiv:2205.05198, appendix A) 72 B l s h^2 (1 + s/(6 h) + V/(12 l h)). */
Test(language_models, megatron_formulas)
{
    static const struct {
        const char *name;
        double billions, heads, h, l, V;
        uint32_t batch;
    } rows[] = {
        {"megatron-1.7b", 1.7, 24, 2304, 24, 51200, 512},
        {"megatron-3.6b", 3.6, 32, 3072, 30, 51200, 512},
        {"megatron-7.5b", 7.5, 32, 4096, 36, 51200, 512},
        {"megatron-18.4b", 18.4, 48, 6144, 40, 51200, 1024},
        {"megatron-22b", 22, 64, 6144, 48, 51200, 4},
        {"megatron-39.1b", 39.1, 64, 8192, 48, 51200, 1536},
        {"megatron-76.1b", 76.1, 80, 10240, 60, 51200, 1792},
        {"megatron-145.6b", 145.6, 96, 12288, 80, 51200, 2304},
        {"megatron-175b", 175, 96, 12288, 96, 51200, 64},
        {"megatron-310.1b", 310.1, 128, 16384, 96, 51200, 2160},
        {"megatron-530b", 529.6, 128, 20480, 105, 51200, 2520},
        {"megatron-1t", 1008.0, 160, 25600, 128, 51200, 3072},
        {"gpt3-175b", 174.6, 96, 12288, 96, 50257, 1536},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double h = rows[i].h, l = rows[i].l, V = rows[i].V, s = 2048, B = rows[i].batch;
        double expected = 12 * l * h * h + 13 * l * h + (V + s) * h + 2 * h;
        double flop = 72 * B * l * s * h * h * (1 + s / (6 * h) + V / (12 * l * h));
        double ours = B * (ty_workload_forward_flop(w, 0, w->layer_count) +
                           ty_workload_backward_flop(w, 0, w->layer_count));
        cr_expect_eq((double)parameters(w), expected, "%s", rows[i].name);
        cr_expect_lt(fabs((double)parameters(w) / 1e9 - rows[i].billions),
                     rows[i].billions < 175 ? 0.1 : 0.5, "%s", rows[i].name);
        cr_expect_lt(fabs(ours / flop - 1), 1e-12, "%s: %g instead of %g", rows[i].name, ours,
                     flop);
        cr_expect_eq(w->global_batch, rows[i].batch, "%s", rows[i].name);
        cr_expect_eq(w->layers[2].attributes[TY_HEADS], rows[i].heads, "%s", rows[i].name);
        ty_workload_free(w);
    }
}

/* Activation bytes per block in 16 bits, Korthikanti et al., arXiv:2205.05198, equation 1: s b h
 * (34 + 5 a s / h). Subtracts the masks of dropout (2 s b h and a s^2 b) and its output (2 a s^2
 * b), and adds the outputs of attention and mlp (2 s b h each), which we store until backward. The
 * equation omits the statistics of the norms. */
Test(language_models, stash_of_a_block)
{
    ty_workload *w = open_one("megatron-22b");
    double s = 2048, h = 6144, a = 64;
    double expected = s * h * (34 - 2 + 4) + 2 * a * s * s, statistics = 2 * 2 * 2 * s;
    double ours = (double)ty_workload_stash_bytes(w, 1, 6) / 2; /* of 4 bytes each */
    cr_expect_eq(ours, expected + statistics, "%g instead of %g", ours, expected);
    ty_workload_free(w);
}

/* Gated decoders. Per token: twice every used matrix parameter, that is all except embedding, norms
 * and idle experts, and 4 t H d of scores and context per block. */
Test(language_models, decoder_flop)
{
    static const struct {
        const char *name;
        double active, blocks, features, heads, head_size, vocabulary, tokens, head_norms;
    } rows[] = {
        {"llama-2-7b", 6738415616, 32, 4096, 32, 128, 32000, 4096, 0},
        {"llama-2-13b", 13015864320, 40, 5120, 40, 128, 32000, 4096, 0},
        {"llama-2-70b", 68976648192, 80, 8192, 64, 128, 32000, 4096, 0},
        {"llama-3-8b", 8030261248, 32, 4096, 32, 128, 128256, 8192, 0},
        {"llama-3-70b", 70553706496, 80, 8192, 64, 128, 128256, 8192, 0},
        {"llama-3.1-405b", 405853388800, 126, 16384, 128, 128, 128256, 8192, 0},
        {"qwen3-32b", 32762123264, 64, 5120, 64, 128, 151936, 4096, 256},
        {"mixtral-8x7b", 12879925248, 32, 4096, 32, 128, 32000, 4096, 0},
        {"mixtral-8x22b", 39152031744, 56, 6144, 48, 128, 32000, 4096, 0},
        {"llama-2-7b sequence=1024", 6738415616, 32, 4096, 32, 128, 32000, 1024, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double l = rows[i].blocks, h = rows[i].features, t = rows[i].tokens;
        double norms = (2 * l + 1) * h + l * rows[i].head_norms;
        double matrices = rows[i].active - rows[i].vocabulary * h - norms;
        double expected = t * (2 * matrices + 4 * l * t * rows[i].heads * rows[i].head_size);
        double forward = ty_workload_forward_flop(w, 0, w->layer_count);
        cr_expect_eq(forward, expected, "%s: %g instead of %g", rows[i].name, forward, expected);
        cr_expect_eq(ty_workload_backward_flop(w, 0, w->layer_count), 2 * forward, "%s",
                     rows[i].name);
        ty_workload_free(w);
    }
}

/* Latents. Scores use 192 numbers of a head and context 128. The rest is twice the active
 * parameters of a token, published as 37 B with embedding (arXiv:2412.19437, abstract). */
Test(language_models, latent_attention_flop)
{
    ty_workload *w = open_one("deepseek-v3");
    double t = 4096, scores = 61 * 2 * t * 128 * (192 + 128);
    double per_token = ty_workload_forward_flop(w, 0, w->layer_count) / t - scores;
    double dense = 3.0 * 3 * 7168 * 18432, output = 7168.0 * 129280;
    double attention = 7168.0 * 1536 + 1536.0 * 128 * 192 + 7168.0 * (512 + 64) +
                       512.0 * 128 * (128 + 128) + 128.0 * 128 * 7168;
    double experts = 58 * (7168.0 * 256 + 9.0 * 3 * 7168 * 2048);
    cr_expect_eq(per_token, 2 * (61 * attention + dense + experts + output), "%g", per_token);
    cr_expect_lt(fabs((per_token / 2 + output) / 37e9 - 1), 0.02, "%g active",
                 per_token / 2 + output);
    ty_workload_free(w);
}

/* Encoder: twice the matrices' parameters per token, bidirectional scores, and the head. */
Test(language_models, encoder_flop)
{
    static const struct {
        const char *name;
        double blocks, h;
        bool is_masked;
    } rows[] = {{"bert-base", 12, 768, false},
                {"bert-large", 24, 1024, false},
                {"bert-base-mlm", 12, 768, true},
                {"bert-large-mlm", 24, 1024, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double h = rows[i].h, t = 512;
        double body = rows[i].blocks * (24 * t * h * h + 4 * t * t * h);
        double head = rows[i].is_masked ? 2 * t * (h * h + 30522 * h) : 2 * h * h;
        cr_expect_eq(ty_workload_forward_flop(w, 0, w->layer_count), body + head, "%s",
                     rows[i].name);
        cr_expect_eq(w->layers[w->layer_count - 1].kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY,
                     rows[i].is_masked, "%s", rows[i].name);
        ty_workload_free(w);
    }
}

/* Both: s tokens in, u out; the keys and values of cross attention are computed from the s
 * tokens. */
Test(language_models, encoder_decoder_flop)
{
    static const struct {
        const char *name;
        double blocks, h, heads, head_size, hidden;
    } rows[] = {{"t5-small", 6, 512, 8, 64, 2048},
                {"t5-base", 12, 768, 12, 64, 3072},
                {"t5-11b", 24, 1024, 128, 128, 65536}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        double h = rows[i].h, inner = rows[i].heads * rows[i].head_size, s = 512, u = 114;
        double mlp = 4 * h * rows[i].hidden, attention = 8 * h * inner;
        double encoder = rows[i].blocks * (s * (attention + mlp) + 4 * s * s * inner);
        double cross = 4 * h * inner * (u + s) + 4 * u * s * inner;
        double decoder = rows[i].blocks * (u * (attention + mlp) + 4 * u * u * inner + cross);
        double expected = encoder + decoder + 2 * u * h * 32128;
        double forward = ty_workload_forward_flop(w, 0, w->layer_count);
        cr_expect_eq(forward, expected, "%s: %g instead of %g", rows[i].name, forward, expected);
        cr_expect_eq(w->tokens_per_sample, 626);
        ty_workload_free(w);
    }
}

/* Number of possible cuts: after the embedding, after each sum, from the norm to the output, and to
 * the loss. */
Test(language_models, cuts)
{
    static const struct {
        const char *name;
        uint32_t cuts;
    } rows[] = {
        {"gpt3-175b", 2 * 96 + 3},
        {"deepseek-v3", 2 * 61 + 3},
        /* sum and norm after either half of a block; embedding and its norm; 3 layers of the head
         * and slice, or 5 and the loss: one less than the number of layers */
        {"bert-base", 12 * 4 + 2 + 2},
        {"bert-base-mlm", 12 * 4 + 2 + 4},
        /* cuts of the encoder also transfer the decoder's tokens, cuts of the decoder up to its
         * last block also the encoder's output: only after the embedding, the last two sums, the
         * norm, the logits */
        {"t5-small", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        uint32_t *cuts = NULL, count = 0;
        ty_error error = {0};
        cr_assert_eq(ty_workload_cuts(w, &cuts, &count, &error), TY_OK, "%s", error.message);
        cr_expect_eq(count, rows[i].cuts, "%s: %u", rows[i].name, count);
        ty_free(cuts);
        ty_workload_free(w);
    }
}

/* Entries that predate the options of language models have unchanged digests. */
Test(language_models, digests_of_old_entries)
{
    static const struct {
        const char *name, *digest;
    } rows[] = {
        {"mlp", "c5c48555e94e0d1ddb2a7b5a3a14fd582bf8e2d187a77775130ef99076ba33e6"},
        {"lenet", "7ef82bc53f2a68134c175808ae295ed64c1749387213fe4111acde8385eda32f"},
        {"gpt-tiny", "f14e08b80369c1ab1277b2ab387e28c6d0b7fd84d411d6d6cf78c1713632c36b"},
        {"vgg16", "75e73e50b11acab258ff6b3e57ca51e97afc2cbf1de6c77d71aaf2381a7116e6"},
        {"resnet50", "d7f68958f9fb6455b916df52ea50d99783c7147c564f7899255edacd41523862"},
        {"gpt2", "5bf3ae57cc586fbd5e2e78b3ca20875d0aeb74ced7a367af4802572364a843ca"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].name);
        ty_digest digest;
        cr_assert_eq(ty_workload_digest(w, &digest, NULL), TY_OK);
        cr_expect_str_eq(digest.hex, rows[i].digest, "%s", rows[i].name);
        ty_workload_free(w);
    }
}

/* Milliseconds of compute, the best of several tries; a debug build has the same limit. */
Test(language_models, load_at_once)
{
    static const char *const names[] = {"gpt3-175b", "megatron-1t", "llama-3.1-405b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double best = HUGE_VAL;
        for (int try = 0; try < 9; try++) {
            clock_t start = clock();
            ty_workload_free(open_one(names[i]));
            best = fmin(best, (double)(clock() - start) / CLOCKS_PER_SEC);
        }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        best /= 10;
#endif
        cr_expect_lt(best, 0.005, "%s: %g s", names[i], best);
    }
}
