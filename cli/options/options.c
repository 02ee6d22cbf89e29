/* The one option table, from which parsing and help follow. */
#include "option_table.h"

#include <stdlib.h>
#include <string.h>

#define FLAG(name, letter, field, help)                                                            \
    {                                                                                              \
        name, letter, OPTION_FLAG, offsetof(cli_options, field), 0, 0, NULL, help                  \
    }
#define TEXT(name, letter, field, argument, help)                                                  \
    {                                                                                              \
        name, letter, OPTION_TEXT, offsetof(cli_options, field), 0, 0, argument, help              \
    }
#define NUMBER(name, field, maximum, argument, help)                                               \
    {                                                                                              \
        name, 0, OPTION_NUMBER, offsetof(cli_options, field##_text), offsetof(cli_options, field), \
            maximum, argument, help                                                                \
    }

static const option_row table[] = {
    TEXT("workload", 'w', workload, "W", "zoo name or workload file"),
    TEXT("config", 0, training_config, "FILE",
         "torchtitan TOML, NeMo, Megatron or MaxText YAML, Accelerate or DeepSpeed: its model, "
         "layout and batch"),
    TEXT("cluster", 'c', cluster, "C", "\"local:2\", \"16x dgx-a100\" or a cluster file"),
    NUMBER("global-batch", global_batch, 1u << 30, "N", "samples per step (default: the usual)"),
    NUMBER("seq", sequence, 1u << 30, "N", "tokens per sample (default: the usual)"),
    TEXT("profile", 'p', profile, "FILE", "measured times to plan with"),
    TEXT("profile-device", 0, profile_device, "D",
         "that the times in the workload's own file (PipeDream, Chakra), or in --profile, were "
         "measured on: they are scaled to the cluster's"),
    TEXT("stack", 0, stack, "S",
         "the framework that is to run it, as it changes costs: a name of 'trainyard stack list', "
         "or "
         "a file; --framework is the same"),
    TEXT(
        "fix", 0, fix, "KEY=V,...",
        "devices=8 (how many, or which: 0-3+8-11), pp=2, dp=4, replicas=2+1, layers=26+24 (of each "
        "stage; 4x8+2 is 8 four times, then 2), interleave=2, tp=8, cp=2, ep=4, tables=row, column "
        "or table (how ep divides those of bags), sp=0 or 1, zero=0 "
        "to 3, schedule=1f1b, micro_batch=16, recompute=none, selective, elementwise (norms "
        "and activation functions), operator, full (block by block), full:4 or stage, "
        "compression=powersgd-2, compress=all or shorter (buckets that "
        "gain by it), embeddings=dense or shorter (as rows where that is), bucket=25MB, one (a "
        "stage) or fitted, cycle=5ms, priority=0, 1 (front layers' buckets first) or shorter "
        "(where "
        "the step is), algorithm=hierarchical, servers=2 (of their own), shard=size or tensor, "
        "staleness=1, actors=2 (of reinforcement learning), lag=1. "
        "Every plan prints "
        "those that give it again"),
    TEXT("against", 0, against, "FIX;...",
         "layouts in the words of --fix, apart by ';': what each is slower by, or misses, is told "
         "with the candidates"),
    NUMBER("top", top, 100, "K", "candidates to print, and simulations at most (default 5)"),
    FLAG("no-simulate", 0, no_simulate, "rank by the estimate alone"),
    FLAG("fastest", 0, fastest,
         "the fastest plan, however little it wins by (default: the simplest of those at most "
         "0.5 % slower)"),
    FLAG("allow-lossy", 0, allow_lossy, "consider compressors that change convergence"),
    TEXT("candidates", 0, candidates, "FILE", "write every candidate and its fate as CSV"),
    NUMBER("seed", seed, UINT64_MAX, "N", "of initial weights and sample order (default 1)"),
    FLAG("program", 0, program, "print the program: every instruction of every stage"),
    TEXT("trace", 't', trace, "FILE", "write a Chrome/Perfetto trace"),
    TEXT("resolution", 0, resolution, "R", "flow (default) or chunk"),
    TEXT("straggler", 0, straggler, "R[.LANE]=F,...",
         "ranks or devices that compute F times as long; \"law\": one rank, as "
         "much as is usual among so many replicas; \"spread:P%\": every device, log-normal"),
    TEXT("slow-link", 0, slow_link, "A:B=F,...",
         "links that carry a share F of what they should, by the names of their ends"),
    TEXT("beside", 0, beside, "PLAN[@D]",
         "another job on the same cluster, its devices numbered from D on (default: behind the "
         "plan's)"),
    TEXT("fail", 0, failures, "WHAT@TIME,...",
         "device:3@2h, host:1@1d, link:A:B@30min; \"random\": as often as is usual. Goodput of a "
         "long run"),
    FLAG("elastic", 0, elastic, "go on with a replica less until the repair"),
    TEXT("horizon", 0, horizon, "TIME", "length of that run (default 30d)"),
    TEXT("checkpoint-interval", 0, checkpoint_interval, "TIME",
         "work between checkpoints (default: the best)"),
    TEXT("restart", 0, restart, "TIME", "from a failure to new work (default: the usual)"),
    TEXT("repair", 0, repair, "TIME", "until what failed is back (default 1d)"),
    TEXT("jitter", 0, jitter, "P%", "spread of compute times (log-normal)"),
    NUMBER("seeds", seeds, 1000, "N",
           "simulate N times with seeds from --seed on: P50 and P95; calibrate: train N times"),
    FLAG("no-fold", 0, no_fold, "simulate every device, also where many are alike"),
    FLAG("per-device", 0, per_device, "show every device, not every rank, in trace and JSON"),
    NUMBER("steps", steps, 100000000, "N",
           "steps to run; plan, whatif and score: price a training of that length"),
    TEXT("tokens", 0, tokens, "N", "price a training on N tokens: 15.6T, 300B"),
    TEXT("epochs", 0, epochs, "N", "price a training of N passes over --input data=SIZE"),
    TEXT("price", 0, price, "P,...",
         "dollars per device and hour: 2.50, h100=2.50, or a kind of the catalogue: on-demand, "
         "rental, reserved, spot"),
    TEXT("until", 0, until, "TARGET",
         "accuracy=X or loss=X of the test set: stop when it is reached"),
    NUMBER("evaluate-every", evaluate_every, 1000000000, "N",
           "steps between two evaluations on the way to --until (default 50)"),
    TEXT("checkpoint", 0, checkpoint, "DIR", "keep the state of the run in this folder"),
    NUMBER("checkpoint-every", checkpoint_every, 1000000000, "N",
           "steps between two checkpoints (default: one at the end)"),
    FLAG("resume", 0, resume, "go on from the newest checkpoint"),
    FLAG("deterministic", 0, deterministic,
         "repeat a run bit for bit on GPUs, where sums of attention otherwise have any order"),
    FLAG("anyway", 0, anyway, "run a plan for other machines on the cores of this one"),
    TEXT("init", 0, init, "FILE",
         "weights to start from: safetensors, its index or their folder, with the names of Hugging "
         "Face"),
    TEXT("save-weights", 0, save_weights, "FILE",
         "write the weights at the end as safetensors, with the same names"),
    TEXT("backend", 0, backend, "B",
         "what computes: cpu (default) or cuda; replay only takes the predicted time; export: cuda "
         "where the plan's devices are NVIDIA's"),
    TEXT("objective", 0, objective, "O", "throughput (default), time-to-target, cost or energy"),
    TEXT("task", 0, task, "T", "how it converges: a task of the catalogue, or a calibration"),
    TEXT("compressions", 0, compressions, "C,...",
         "compressors whose cost in steps is measured: top-k:0.01,powersgd-2"),
    TEXT("reached", 0, reached, "B:N,...",
         "batches and what they took to the target, in samples, epochs or tokens, with the number "
         "of runs: 512:23epochs*5,1024:26epochs"),
    TEXT("mfu", 0, mfu, "SHARE", "measured: model flop of a step over the devices' peak, 0.41"),
    TEXT("tokens-per-s", 0, tokens_per_s, "N", "measured: tokens of all devices a second"),
    TEXT("step-time", 0, step_time, "TIME", "measured: of a step, 0.8 or 800ms"),
    TEXT("constants", 0, constants, "K,...",
         "of the stack, to be fitted whatever the rows tell of them (default: those that lower the "
         "error of rows left out)"),
    TEXT("learning-rate", 0, learning_rate, "R",
         "to train with (default: the workload's, or with a calibration as --task the rate it "
         "proposes for the batch; less for late gradients)"),
    TEXT("system", 0, system, "NAME", "as this system would: see trainyard systems"),
    TEXT("input", 0, input, "K=V,...",
         "of the samples: data=1.3TB (all of them), decode=250/s (of a core), cores=32 (of a host "
         "that decode), epoch=first or later, shuffle=global or host"),
    TEXT("budget", 0, budget, "B",
         "of the device that what is trained is for, a name (sensor, microcontroller, phone, "
         "jetson-nano) or figures: memory=100KB (weights and activations), time=100ms (a sample), "
         "rate=1TFLOPS, bandwidth=10GB/s; variant=int8 looks at that one alone"),
    TEXT("memory-reserve", 0, memory_reserve, "P%",
         "share of every device's usable memory that stays free (default 4%)"),
    TEXT("phases", 0, phases, "FILE",
         "phases of one training, each with its steps, batch, learning rate, momentum, size of "
         "images and pins: each is planned, and the plans run one behind the other"),
    TEXT("precision", 0, precision, "P", TY_PRECISION_NAMES "; the last two are not run"),
    NUMBER("vocabulary", vocabulary, 1u << 20, "N",
           "different tokens at most (default 256: the bytes); of an imported file that only names "
           "a tokenizer, how many it has"),
    TEXT("data", 'd', data, "PATH", "where the data set lies; for text a file of text or tokens"),
    NUMBER("bad-samples", bad_samples, 1000000000, "N",
           "samples that a rank may skip because they cannot be read (default 0: none)"),
    TEXT("fail-over", 0, fail_over, "P%", "exit 1 when the step time is off by more"),
    NUMBER("ranks", ranks, 4096, "N",
           "ranks measured side by side (default: one per core); of a collective, the first "
           "devices (default: all)"),
    TEXT("micro-batches", 0, micro_batches, "N,...", "micro-batch sizes to time"),
    TEXT("collective", 0, collective, "K",
         "all_reduce (default), all_gather, reduce_scatter, ...; of logs that do not say"),
    TEXT("size", 0, sizes, "B,...",
         "of a collective, as nccl-tests counts it: 64MiB,1GB (default: 1 KiB to 1 GiB)"),
    TEXT("algorithm", 0, algorithm, "A",
         "of a collective: Ring, Tree, NVLS, ... as NCCL_ALGO has them, hierarchical, "
         "parameter-server or block-manager (default: what the library chooses)"),
    FLAG("queued", 0, queued,
         "a collective as one of many behind one another on the devices, or of a CUDA graph, not "
         "launched and met by itself as nccl-tests does"),
    TEXT("title", 0, title, "TEXT", "headline of the report"),
    TEXT("directory", 0, directory, "DIR", "where files are written (default: here)"),
    TEXT("mode", 0, mode, "M", "pipedream (default) or flat"),
    TEXT("machines", 0, machines, "4x2", "devices in a server x servers, innermost first"),
    TEXT("bandwidths", 0, bandwidths, "B,...", "of each level: 30GB/s,25Gb/s"),
    TEXT("ratio", 0, ratio, "R", "count activation transfers, divided by R (default: free)"),
    TEXT("memory", 0, memory, "BYTES", "of a device: 16GB (default: no limit, or the file's)"),
    TEXT("merge", 0, merge, "HOW", "branches: auto (default, if they are many), none, branches"),
    FLAG("straight", 0, straight, "no replicas"),
    FLAG("fewer", 0, fewer, "devices may stay idle"),
    TEXT("host", 0, host, "HOST",
         "the catalogue's host where a file does not say the inside; export --to nccl: whose"),
    TEXT("device", 0, device, "DEVICE", "the catalogue's device where a file does not say which"),
    NUMBER("hosts", hosts, 262144, "N", "so many copies of a machine described once"),
    TEXT("oversubscription", 0, oversubscription, "R", "of uplinks that a file does not rate"),
    TEXT("root", 0, root, "SWITCH", "import only what is below this switch"),
    TEXT("format", 0, format, "F", "format of the file (default: found out)"),
    TEXT("to", 0, to, "F", "what to write: see below"),
    TEXT("metrics", 0, metrics, "FILE", "write the run as Prometheus text"),
    TEXT("mlperf-log", 0, mlperf_log, "FILE", "write the run as MLPerf log lines"),
    TEXT("nodes", 0, nodes, "LIST", "real names of the cluster's hosts: node[01-16]"),
    TEXT("script", 0, script, "FILE", "your training script (default train.py)"),
    TEXT("image", 0, image, "NAME",
         "container image of Kubernetes targets, and of what --on starts"),
    TEXT("on", 0, on, "PLACE",
         "what starts launch.sh on every host: slurm, k8s-jobset, k8s-trainjob or skypilot"),
    TEXT("rdma", 0, rdma, "NAME",
         "resource by which Kubernetes hands out network adapters (default "
         "rdma/rdma_shared_device_a), or none"),
    FLAG("show-origin", 0, show_origin, "where each setting comes from"),
    FLAG("force", 0, force, "replace files that are there"),
    {"vary", 0, OPTION_VARY, 0, 0, 0, "KEY=V,...",
     "values to try: of hosts, batch, bandwidth.LINK, tp, ...; several multiply"},
    TEXT("rows", 0, rows, "FILE", "a document whose rows are not done again"),
    FLAG("csv", 0, csv, "print a table of comma-separated values"),
    TEXT("output", 'o', output, "FILE", "file to write; - is standard output"),
    FLAG("json", 'j', json, "print one JSON document instead of text"),
    FLAG("quiet", 'q', quiet, "no progress on stderr"),
    FLAG("trust-config", 0, trust_config,
         "./trainyard.conf may name scripts, images and paths outside its folder"),
    FLAG("help", 'h', help, "this text"),
};
#define TABLE_COUNT (sizeof table / sizeof table[0])

const option_row *option_at(size_t index)
{
    return index < TABLE_COUNT ? &table[index] : NULL;
}

const option_row *option_named(const char *name)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

bool command_accepts(const cli_command *command, const option_row *row)
{
    if (strcmp(row->name, "help") == 0 || strcmp(row->name, "quiet") == 0 ||
        strcmp(row->name, "trust-config") == 0)
        return true;
    for (const char *const *o = command->options; *o != NULL; o++)
        if (strcmp(*o, row->name) == 0)
            return true;
    return false;
}

bool option_is_set(const option_row *row, const cli_options *options)
{
    const char *text = NULL;
    bool is_on = false;

    if (row->kind == OPTION_FLAG) {
        memcpy(&is_on, (const char *)options + row->offset, sizeof is_on);
        return is_on;
    }
    if (row->kind == OPTION_VARY)
        return options->vary_count > 0;
    memcpy(&text, (const char *)options + row->offset, sizeof text);
    return text != NULL;
}

static const option_row *find(const cli_command *command, const char *name, size_t length,
                              char letter)
{
    static const char synonym[] = "framework";

    if (name != NULL && length == strlen(synonym) && memcmp(name, synonym, length) == 0)
        return find(command, "stack", strlen("stack"), 0);
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        bool is_match = letter != 0 ? table[i].letter == letter
                                    : strlen(table[i].name) == length &&
                                          memcmp(table[i].name, name, length) == 0;
        if (is_match && command_accepts(command, &table[i]))
            return &table[i];
    }
    return NULL;
}

/* What other programs call our options. */
static const struct {
    const char *word, *option;
} said_elsewhere[] = {
    {"model", "workload"},      {"network", "workload"},   {"gpus", "cluster"},
    {"nodes", "cluster"},       {"batch", "global-batch"}, {"batch-size", "global-batch"},
    {"seq-len", "seq"},         {"seq-length", "seq"},     {"sequence", "seq"},
    {"sequence-length", "seq"}, {"dtype", "precision"},    {"out", "output"},
    {"output-file", "output"},
};

static exit_code unknown_option(const cli_command *command, const char *word)
{
    const char *names[TABLE_COUNT];
    size_t count = 0;
    const char *close;
    char bare[32];

    if (strncmp(word, "--", 2) != 0) { /* "-w=lenet", "-wlenet" */
        const option_row *row = find(command, NULL, 0, word[1]);
        if (row != NULL && row->argument != NULL)
            return report_usage(command->name,
                                "unknown option '%s'; did you mean '-%c %s', with a blank?", word,
                                word[1], word + 2 + strspn(word + 2, "="));
        return report_usage(command->name, "unknown option '%s'", word);
    }
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (command_accepts(command, &table[i]))
            names[count++] = table[i].name;
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    close = ty_suggest(bare, names, count, sizeof names[0]);
    for (size_t i = 0; i < sizeof said_elsewhere / sizeof said_elsewhere[0]; i++)
        if (strcmp(bare, said_elsewhere[i].word) == 0 &&
            find(command, said_elsewhere[i].option, strlen(said_elsewhere[i].option), 0) != NULL)
            close = said_elsewhere[i].option;
    if (close != NULL)
        return report_usage(command->name, "unknown option '%s'; did you mean '--%s'?", word,
                            close);
    for (char *at = bare; *at != '\0'; at++) /* keys of --fix have the other stroke */
        *at = *at == '-' ? '_' : *at;
    if (ty_fix_key_is_known(bare) && find(command, "fix", strlen("fix"), 0) != NULL)
        return report_usage(command->name, "unknown option '%s'; did you mean '--fix %s=...'?",
                            word, bare);
    return report_usage(command->name, "unknown option '%s'", word);
}

/* A word more than the command takes. Perhaps the value before it goes on there, which a shell
 * has cut at a blank; or it is the workload or the cluster that is wanted still. */
static exit_code unexpected_argument(const cli_command *command, const cli_options *options,
                                     const option_row *before, const char *value)
{
    const char *word = options->files[command->maximum_files];
    const char *missing = NULL;

    if (before != NULL && (strcmp(before->name, "fix") == 0 || before->kind == OPTION_VARY)) {
        const size_t length = strlen(value);
        return report_usage(command->name,
                            "unexpected argument '%s'; values are one word, with commas: --%s "
                            "'%s%s%s'",
                            word, before->name, value,
                            length > 0 && value[length - 1] == ',' ? "" : ",", word);
    }
    if (before != NULL &&
        ((strcmp(before->name, "cluster") == 0 &&
          (strspn(value, "0123456789x") == strlen(value) || strpbrk(word, ":@") != NULL)) ||
         (strcmp(before->name, "workload") == 0 && strchr(word, '=') != NULL)))
        return report_usage(command->name,
                            "unexpected argument '%s'; words that belong together are quoted: "
                            "--%s '%s %s%s'",
                            word, before->name, value, word,
                            options->file_count > command->maximum_files + 1 ? " ..." : "");
    if (options->workload == NULL && find(command, "workload", strlen("workload"), 0) != NULL)
        missing = "workload";
    else if (options->cluster == NULL && find(command, "cluster", strlen("cluster"), 0) != NULL)
        missing = "cluster";
    if (missing != NULL && strcmp(command->name, missing) != 0)
        return report_usage(command->name, "unexpected argument '%s'; a %s is given as --%s '%s'",
                            word, missing, missing, word);
    return report_usage(command->name, "unexpected argument '%s'", word);
}

exit_code option_set(const cli_command *command, const option_row *row, const char *value,
                     cli_options *out)
{
    ty_error error = {0};
    ty_precision precision;
    const bool yes = true;

    if (row->kind == OPTION_FLAG) {
        memcpy((char *)out + row->offset, &yes, sizeof yes);
        return EXIT_DONE;
    }
    if (row->kind == OPTION_VARY) {
        if (out->vary_count == CLI_MOST_VARIED)
            return report_usage(command->name, "--vary: at most %d keys", CLI_MOST_VARIED);
        out->vary[out->vary_count++] = value;
        return EXIT_DONE;
    }
    if (strcmp(row->name, "fix") == 0 && out->fix != NULL) /* pins are never dropped */
        return report_usage(command->name, "--fix: found twice, expected once: --fix %s,%s",
                            out->fix, value);
    if (strcmp(row->name, "precision") == 0 && ty_precision_find(value, &precision, NULL) == TY_OK)
        value = ty_precision_name(precision); /* "BF16", "float32" */
    memcpy((char *)out + row->offset, &value, sizeof value);
    if (row->kind == OPTION_NUMBER) {
        uint64_t number;
        uint64_t minimum = strcmp(row->name, "seed") == 0 ? 0 : 1;
        if (ty_parse_uint(value, minimum, row->maximum, &number, &error) != TY_OK)
            return report_usage(command->name, "--%s: %s", row->name, error.message);
        memcpy((char *)out + row->number, &number, sizeof number);
    }
    return EXIT_DONE;
}

/* One word that starts with '-'; may take the next word as its value.
 * @param taken [out] the option whose value the next word was; NULL: none */
static exit_code parse_option(const cli_command *command, int count, char **words, int *at,
                              const option_row **taken, cli_options *out)
{
    const char *word = words[*at];
    bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t length = equals != NULL ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const option_row *row = is_long ? find(command, word + 2, length, 0)
                                    : (word[2] == '\0' ? find(command, NULL, 0, word[1]) : NULL);

    *taken = NULL;
    if (row == NULL)
        return unknown_option(command, word);
    if (row->kind == OPTION_FLAG) {
        if (equals != NULL)
            return report_usage(command->name, "--%s takes no value", row->name);
        return option_set(command, row, NULL, out);
    }
    if (equals != NULL)
        return option_set(command, row, equals + 1, out);
    if (*at + 1 >= count)
        return report_usage(command->name, "--%s needs a value: %s", row->name, row->argument);
    *taken = row;
    return option_set(command, row, words[++*at], out);
}

/* "run lenet": a word that is no file where a plan's file belongs. */
static exit_code check_plan_name(const cli_command *command, const cli_options *options)
{
    static const char plan[] = "PLAN ";
    ty_error error = {0};

    if (strncmp(command->usage, plan, sizeof plan - 1) != 0 ||
        strpbrk(options->files[0], "./") != NULL || strcmp(options->files[0], "-") == 0 ||
        ty_file_exists(options->files[0]))
        return EXIT_DONE;
    ty_fail(&error, TY_EIO,
            "%s: found no such file, expected that of a plan, which trainyard plan -w W -c C -o "
            "FILE writes",
            options->files[0]);
    return report_bad_input(&error);
}

exit_code options_parse(const cli_command *command, int count, char **words, cli_options *out)
{
    exit_code code = EXIT_DONE;
    bool only_files = false;
    const option_row *last = NULL, *before = NULL; /* whose value stands before a word too many */
    const char *value = NULL;

    *out = (cli_options){.seed = TY_USUAL_SEED};
    out->files = ty_alloc((size_t)count + 1, sizeof *out->files);
    if (out->files == NULL)
        return report_failure(&(ty_error){TY_ENOMEM, "out of memory"});
    for (int i = 0; i < count && code == EXIT_DONE; i++) {
        if (!only_files && strcmp(words[i], "--") == 0)
            only_files = true;
        else if (!only_files && words[i][0] == '-' && words[i][1] != '\0')
            code = parse_option(command, count, words, &i, &last, out);
        else {
            if (out->file_count == command->maximum_files && i > 0) {
                before = last;
                value = words[i - 1];
            }
            out->files[out->file_count++] = words[i];
            last = NULL;
        }
    }
    if (code != EXIT_DONE || out->help)
        return code;
    if ((code = config_apply(command, out)) != EXIT_DONE)
        return code;
    if (out->file_count < command->minimum_files)
        return report_usage(command->name, "needs %s", command->usage);
    if (out->file_count > command->maximum_files)
        return unexpected_argument(command, out, before, value);
    return check_plan_name(command, out);
}

void options_clear(cli_options *options)
{
    ty_free(options->files);
    config_free(options->config);
    options->files = NULL;
    options->config = NULL;
}

/* Prints `text` from column `column` on, broken at spaces before column 80. */
static void print_wrapped(FILE *stream, const char *text, int column)
{
    int at = column;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > 79) {
            fprintf(stream, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', stream);
            at++;
        }
        fprintf(stream, "%.*s", length, text);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

static void print_option(FILE *stream, const option_row *row)
{
    char left[64];
    int width;

    if (row->letter != 0)
        width =
            snprintf(left, sizeof left, "-%c, --%s%s%s", row->letter, row->name,
                     row->argument != NULL ? " " : "", row->argument != NULL ? row->argument : "");
    else
        width =
            snprintf(left, sizeof left, "    --%s%s%s", row->name, row->argument != NULL ? " " : "",
                     row->argument != NULL ? row->argument : "");
    fprintf(stream, "  %s%*s", left, width < 28 ? 28 - width : 1, "");
    print_wrapped(stream, row->help, 30);
}

void options_help(const cli_command *command, FILE *stream)
{
    if (command == NULL) {
        fputs("usage: trainyard COMMAND [options] [files]\n\n", stream);
        for (const cli_command *c = commands; c->name != NULL; c++) {
            fprintf(stream, "  %-10s", c->name);
            print_wrapped(stream, c->summary, 12);
        }
        fputs("\nDefaults come from /etc/trainyard.conf, ~/.config/trainyard/config and\n"
              "./trainyard.conf: see trainyard config.\n"
              "trainyard help COMMAND tells more, with examples; trainyard -V the version.\n"
              "Exit codes: 0 done, 1 failed, 2 usage, 3 bad input, 4 no feasible plan,\n"
              "130 interrupted.\n",
              stream);
        return;
    }
    fprintf(stream, "usage: trainyard %s %s\n\n", command->name, command->usage);
    print_wrapped(stream, command->summary, 0);
    fputc('\n', stream);
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (command_accepts(command, &table[i]))
            print_option(stream, &table[i]);
    if (command->details != NULL)
        fprintf(stream, "\n%s", command->details);
    for (size_t i = 0; example_of(command->name, i) != NULL; i++)
        fprintf(stream, "%s  %s\n", i == 0 ? "\nFor example:\n" : "", example_of(command->name, i));
}
