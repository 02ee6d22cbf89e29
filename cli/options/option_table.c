/* The one table of options. */
#include "option_table.h"

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
    NUMBER("seq", sequence, 1u << 30, "N", "tokens per sample, 8192 or 8k (default: the usual)"),
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
        "stage; 4x8+2 is 8 four times, then 2), vpp=2, tp=8, cp=2, ep=4, tables=row, column "
        "or table (how EP shards tables of bags), sp=0 or 1, zero=0 "
        "to 3, schedule=1f1b, micro_batch=16, recompute=none, selective, elementwise (norms "
        "and activation functions), operator, full (block by block), full:4 or stage, "
        "compression=powersgd-2, compress=all or shorter (buckets that "
        "gain by it), embeddings=dense or shorter (as rows where that is), bucket=25MB, one (per "
        "stage) or fitted, cycle=5ms, priority=0, 1 (buckets of the first layers first) or shorter "
        "(where "
        "the step is), algorithm=hierarchical, servers=2 (of their own), shard=size or tensor, "
        "staleness=1, actors=2 (of reinforcement learning), lag=1. "
        "Every plan prints "
        "those that give it again"),
    TEXT("against", 0, against, "FIX;...",
         "layouts in the words of --fix, apart by ';': the candidates "
         "list how much slower each is, or what it misses"),
    NUMBER("top", top, 100, "K", "candidates to print, and simulations at most (default 5)"),
    FLAG("no-simulate", 0, no_simulate, "rank by the estimate alone"),
    FLAG("fastest", 0, fastest,
         "the fastest plan, however little it wins by (default: the simplest of those at most "
         "0.5 % slower)"),
    FLAG("allow-lossy", 0, allow_lossy, "consider compressors that change convergence"),
    TEXT("candidates", 0, candidates, "FILE", "write every candidate and its result as CSV"),
    NUMBER("seed", seed, UINT64_MAX, "N", "of initial weights and sample order (default 1)"),
    FLAG("program", 0, program, "print the program: every instruction of every stage"),
    TEXT("trace", 't', trace, "FILE", "write a Chrome/Perfetto trace"),
    TEXT("engine", 0, engine, "E", "simgrid (default where it can be used) or flow"),
    TEXT("resolution", 0, resolution, "R", "flow (default) or chunk"),
    TEXT("straggler", 0, straggler, "R[.RANK]=F,...",
         "stage replicas or ranks that compute F times as long; \"law\": stage "
         "replica 0, as slow as usual for N replicas; \"spread:P%\": every device, log-normal"),
    TEXT("slow-link", 0, slow_link, "A:B=F,...",
         "links at a share F of their bandwidth, by the names of their ends"),
    TEXT("beside", 0, beside, "PLAN[@D]",
         "another job on the same cluster, its devices numbered from D on (default: after the "
         "plan's)"),
    TEXT("fail", 0, failures, "WHAT@TIME,...",
         "device:3@2h, host:1@1d, link:A:B@30min; \"random\": as often as is usual. Goodput of a "
         "long run"),
    FLAG("elastic", 0, elastic, "continue with a replica less until the repair"),
    TEXT("horizon", 0, horizon, "TIME", "length of that run (default 30d)"),
    TEXT("checkpoint-interval", 0, checkpoint_interval, "TIME",
         "work between checkpoints (default: the best)"),
    TEXT("restart", 0, restart, "TIME", "from a failure to new work (default: the usual)"),
    TEXT("repair", 0, repair, "TIME", "until what failed is back (default 1d)"),
    TEXT("jitter", 0, jitter, "P%", "spread of compute times (log-normal)"),
    NUMBER("seeds", seeds, 1000, "N",
           "simulate N times with seeds from --seed on: P50 and P95; calibrate: train N times"),
    FLAG("no-fold", 0, no_fold, "simulate every device, also where many are alike"),
    FLAG("per-device", 0, per_device,
         "show every rank, not every stage replica, in trace and JSON"),
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
    TEXT("checkpoint-every", 0, checkpoint_every, "N|T",
         "steps or time between two checkpoints, 100 or 10min (default: one at the end)"),
    NUMBER("keep", keep, 1000000, "K",
           "newest checkpoints that remain (default 2); if the newest is damaged, --resume takes "
           "the one before"),
    FLAG("resume", 0, resume, "continue from the newest checkpoint"),
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
    TEXT("tokens-per-s", 0, tokens_per_s, "N", "measured: tokens of all devices per second"),
    TEXT("step-time", 0, step_time, "TIME", "measured: of a step, 0.8 or 800ms"),
    TEXT("constants", 0, constants, "K,...",
         "of the stack, to be fitted in any case (default: those that lower the "
         "error of rows left out)"),
    TEXT("learning-rate", 0, learning_rate, "R",
         "to train with (default: the workload's, or with a calibration as --task the rate it "
         "proposes for the batch; less for stale gradients)"),
    TEXT("system", 0, system, "NAME", "as this system would: see trainyard systems"),
    TEXT("input", 0, input, "K=V,...",
         "of the samples: data=1.3TB (all of them), decode=250/s (of a core), cores=32 (of a host "
         "that decode), epoch=first or later, shuffle=global or host"),
    TEXT("budget", 0, budget, "B",
         "of the device that what is trained is for, a name (sensor, microcontroller, phone, "
         "jetson-nano) or figures: memory=100KB (weights and activations), time=100ms (a sample), "
         "rate=1TFLOPS, bandwidth=10GB/s; variant=int8 considers only that one"),
    TEXT("memory-reserve", 0, memory_reserve, "P%",
         "share of every device's usable memory that stays free (default 4%)"),
    TEXT("phases", 0, phases, "FILE",
         "phases of one training, each with its steps, batch, learning rate, momentum, size of "
         "images and pins: each is planned, and the plans run one after the other"),
    TEXT("precision", 0, precision, "P", TY_PRECISION_NAMES "; the last two are not run"),
    TEXT("optimizer", 0, optimizer, "O",
         "sgd, momentum, adam, adam8bit, adafactor or muon (default: the workload's); the last "
         "three are not run"),
    NUMBER("vocabulary", vocabulary, 1u << 20, "N",
           "different tokens at most (default 256: the bytes); of an imported file that only names "
           "a tokenizer, how many it has"),
    TEXT("data", 'd', data, "PATH", "path of the data set; for text a file of text or tokens"),
    NUMBER("bad-samples", bad_samples, 1000000000, "N",
           "samples that a rank may skip because they cannot be read (default 0: none)"),
    TEXT("fail-over", 0, fail_over, "P%", "exit 1 when the step time is off by more"),
    NUMBER("ranks", ranks, 4096, "N",
           "ranks measured concurrently (default: one per core); of a collective, the first "
           "devices (default: all)"),
    NUMBER("per-host", per_host, 4096, "N",
           "of a collective, only the first N devices of each host (default: all)"),
    TEXT("micro-batches", 0, micro_batches, "N,...", "micro-batch sizes to time"),
    TEXT("collective", 0, collective, "K",
         "all_reduce (default), all_gather, reduce_scatter, ...; of logs that do not say"),
    TEXT("size", 0, sizes, "B,...",
         "of a collective, as nccl-tests counts it: 64MiB,1GB (default: 1 KiB to 1 GiB)"),
    TEXT("algorithm", 0, algorithm, "A",
         "of a collective: Ring, Tree, NVLS, ... as NCCL_ALGO has them, hierarchical, "
         "parameter-server or block-manager (default: what the library chooses)"),
    FLAG("queued", 0, queued,
         "a collective as one of many in a row on the devices, or of a CUDA graph, not "
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
    NUMBER("hosts", hosts, 262144, "N", "N copies of a host described once"),
    TEXT("oversubscription", 0, oversubscription, "R", "of uplinks that a file does not rate"),
    TEXT("root", 0, root, "SWITCH", "import only what is below this switch"),
    TEXT("format", 0, format, "F", "format of the file (default: found out)"),
    TEXT("to", 0, to, "F", "what to write: see below"),
    TEXT("metrics", 0, metrics, "FILE", "write the run as Prometheus text"),
    TEXT("mlperf-log", 0, mlperf_log, "FILE", "write the run as MLPerf log lines"),
    TEXT("nodes", 0, nodes, "LIST", "real names of the cluster's hosts: node[01-16]"),
    TEXT("script", 0, script, "FILE", "your training script (default train.py)"),
    TEXT("image", 0, image, "NAME", "container image of Kubernetes targets and of --on"),
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
_Static_assert(TABLE_COUNT <= MOST_OPTIONS, "lists of names have room for all");

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

static bool is_path(const option_row *row)
{
    static const char *const arguments[] = {"FILE", "DIR", "PATH"};

    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        if (row->argument != NULL && strcmp(row->argument, arguments[i]) == 0)
            return true;
    return false;
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
    if (value[0] == '\0' && is_path(row))
        return report_usage(command->name, "--%s: found an empty name, expected %s", row->name,
                            row->argument);
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
        const uint64_t minimum = strcmp(row->name, "seed") == 0 ? 0 : 1;
        const size_t digits = strspn(value, "0123456789.");
        const bool is_batch = strcmp(row->name, "global-batch") == 0;
        if ((strcmp(row->name, "seq") == 0
                 ? ty_parse_length(value, row->maximum, &number, &error)
                 : ty_parse_uint(value, minimum, row->maximum, &number, &error)) != TY_OK)
            return report_usage(command->name, "--%s: %s%s", row->name, error.message,
                                is_batch && digits > 0 && strspn(value + digits, "kKM") == 1
                                    ? " samples or sequences; of tokens, type their number divided "
                                      "by the sequence length"
                                    : "");
        memcpy((char *)out + row->number, &number, sizeof number);
    }
    return EXIT_DONE;
}
