/* One table of subcommands. */
#include "cli.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define OPTIONS(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static const cli_command commands[] = {
    {"plan", "--workload W --cluster C [options]",
     "find the best way to train a workload on a cluster",
     "Prints the plan, what limits it, and why the other candidates lost.\n"
     "With --config the model, the layout and the batch are those of a training\n"
     "program's file: how fast that is, whether it fits, what would be better.\n",
     OPTIONS("workload", "config", "vocabulary", "cluster", "seq", "global-batch", "input",
             "budget", "phases", "memory-reserve", "precision", "optimizer", "profile",
             "profile-device", "stack", "fix", "against", "fastest", "allow-lossy", "system",
             "objective", "task", "learning-rate", "top", "no-simulate", "candidates", "tokens",
             "epochs", "steps", "price", "seed", "output", "json"),
     0, 0, cmd_plan},
    {"estimate", "PLAN [options]", "walk the plan's program with its costs: milliseconds", NULL,
     OPTIONS("stack", "program", "trace", "json"), 1, 1, cmd_estimate},
    {"simulate", "PLAN [options]", "run the program on a simulated network with contention", NULL,
     OPTIONS("cluster", "stack", "engine", "resolution", "steps", "straggler", "jitter",
             "slow-link", "beside", "fail", "elastic", "horizon", "checkpoint-interval", "restart",
             "repair", "seed", "seeds", "no-fold", "per-device", "trace", "json"),
     1, 1, cmd_simulate},
    {"memory", "--workload W --cluster C [options]",
     "does it fit: bytes of every stage's devices by purpose", NULL,
     OPTIONS("workload", "config", "vocabulary", "cluster", "seq", "global-batch", "memory-reserve",
             "precision", "optimizer", "profile", "profile-device", "stack", "fix", "fastest",
             "json"),
     0, 0, cmd_memory},
    {"score", "PLAN [options]", "time to target, money and energy of a plan", NULL,
     OPTIONS("task", "tokens", "epochs", "steps", "price", "json"), 1, 1, cmd_score},
    {"systems", "--workload W --cluster C [options]",
     "what every known system would make of it, side by side",
     "GPipe, PipeDream, Horovod, parameter servers and the others as presets: the best\n"
     "that each can do. plan --system NAME gives one as a plan.\n",
     OPTIONS("workload", "cluster", "seq", "global-batch", "input", "memory-reserve", "precision",
             "optimizer", "profile", "profile-device", "stack", "seed", "json"),
     0, 0, cmd_systems},
    {"run", "PLAN [options]", "train for real on local ranks and measure", NULL,
     OPTIONS("backend", "precision", "steps", "until", "evaluate-every", "data", "bad-samples",
             "checkpoint", "checkpoint-every", "keep", "resume", "deterministic", "init",
             "save-weights", "anyway", "metrics", "mlperf-log", "output", "json"),
     1, 1, cmd_run},
    {"compare", "PLAN RUN [options]", "predicted against measured, operation by operation", NULL,
     OPTIONS("task", "fail-over", "json"), 2, 2, cmd_compare},
    {"report", "FILE... -o report.html [options]",
     "one self-contained HTML page of plans, runs, what-ifs and scores",
     "The schema of a file says what it is: one plan, its run, and what simulate,\n"
     "whatif, validate and plan print with --json (docs/guides/read-a-report.md).\n"
     "A second plan is compared with the first.\n",
     OPTIONS("title", "task", "output"), 1, 64, cmd_report},
    {"whatif", "--workload W --cluster C --vary KEY=V,... [options]",
     "the best plan for every combination of values, as a table",
     "KEY is workload, cluster, batch, seq, workload.KEY, system, stack, precision,\n"
     "optimizer, objective, task; hosts, device, pod, leaf, host, gpu, oversub;\n"
     "bandwidth.LINK, latency.LINK, memory, memory_bandwidth, compute (quantities,\n"
     "or factors as x2; LINK may be all); storage.bandwidth, .host, .latency,\n"
     ".requests, .request, .capacity (of the last level, or .NAME after it);\n"
     "input, input.KEY; price, power, failure_rate; or a key of --fix.\n",
     OPTIONS("workload", "cluster", "seq", "global-batch", "input", "memory-reserve", "precision",
             "optimizer", "profile", "profile-device", "stack", "fix", "fastest", "allow-lossy",
             "system", "objective", "task", "top", "no-simulate", "tokens", "epochs", "steps",
             "price", "seed", "vary", "rows", "output", "json", "csv"),
     0, 0, cmd_whatif},
    {"profile", "--workload W | import TRACE [options]",
     "measure layers, copies and collectives here, or import a trace",
     "With --backend cuda layers, updates and compressors are measured on GPUs by\n"
     "their own clock, in --precision P; collectives are not: see calibrate.\n"
     "With --data PATH only how fast the worker reads samples from there, by threads,\n"
     "and the words of --input that say so to plan, systems and whatif.\n"
     "import reads traces of PyTorch's profiler. With --workload W and\n"
     "--micro-batches N, the samples of one pass, layers get the times of the\n"
     "annotations NAME and NAME.backward; without, every name its mean.\n",
     OPTIONS("workload", "backend", "precision", "ranks", "micro-batches", "data", "bad-samples",
             "output", "json"),
     0, 2, cmd_profile},
    {"calibrate", "FILE...|-w W -c C|--reached B:N,... [options]",
     "measure collectives from logs of nccl-tests, a stack, or how a workload converges",
     "From logs: the profile goes to plan and memory with --profile; with --profile\n"
     "here, rows are added to that one.\n"
     "With a workload, on local:N: trains it to --until, --seeds times, then a little\n"
     "with each of --compressions and with late gradients. The calibration it writes\n"
     "goes to plan, score and compare with --task; a batch and a learning rate are\n"
     "proposed.\n"
     "With --reached, of runs elsewhere: the law of steps and batch through them, and\n"
     "what --global-batch takes by it.\n"
     "With --stack S: constants of S, from a table of step times with their layouts\n"
     "(CSV or JSON), one figure for the layout of -w, -c, --fix and the rest, or logs.\n"
     "Rows are left out in turn to see what they tell. The stack that -o writes goes\n"
     "to every command with --stack (docs/guides/calibrate.md).\n",
     OPTIONS("stack", "mfu", "tokens-per-s", "step-time", "constants", "fix", "precision", "seq",
             "cluster", "profile", "collective", "workload", "until", "global-batch",
             "evaluate-every", "steps", "seeds", "seed", "compressions", "reached", "learning-rate",
             "data", "output", "json"),
     0, 4096, cmd_calibrate},
    {"partition", "GRAPH --machines 4x2 --bandwidths B,B [options]",
     "divide a measured layer graph into stages, as PipeDream would",
     "GRAPH is a PipeDream profile (graph.txt). --mode flat places replicas on\n"
     "devices, and is never worse than pipedream.\n",
     OPTIONS("mode", "machines", "bandwidths", "ratio", "memory", "straight", "fewer", "merge",
             "json"),
     1, 1, cmd_partition},
    {"workload", "list | show NAME | import FILE | export NAME [options]",
     "the zoo, what a workload is made of, and files of other programs",
     "import guesses what the file is and says on stderr what it ignores and assumes.\n"
     "A trace of PyTorch's profiler gives a profile, of --workload's layers if wanted\n"
     "(see profile); a DeepSpeed configuration trains --workload W as it says.\n"
     "export --to json (default) or chakra.\n",
     OPTIONS("workload", "micro-batches", "seq", "global-batch", "vocabulary", "to", "output",
             "json"),
     1, 2, cmd_workload},
    {"cluster", "list|show C|check C|collective C|import FILE|export C",
     "the catalogue, what a cluster is made of, and files of other tools",
     "import reads NCCL XML, nvidia-smi topo -m, hwloc, Slurm, ibnetdiscover and\n"
     "SimGrid; check names weak points and the like.\n"
     "collective says how long one takes among --ranks devices, by itself.\n"
     "export --to json (default), dot, nccl, simgrid or slurm.\n",
     OPTIONS("collective", "ranks", "per-host", "size", "algorithm", "queued", "host", "device",
             "hosts", "oversubscription", "root", "format", "to", "output", "json"),
     1, 2, cmd_cluster},
    {"stack", "list | show NAME|FILE [options]",
     "software that runs plans, as far as it changes their costs",
     "What --stack takes. list shows names and titles, with --quiet names alone; show\n"
     "every constant with its source; with --json a file to start one's own from: a\n"
     "stack that is \"like\" another says only what differs\n"
     "(docs/reference/framework-files.md).\n",
     OPTIONS("output", "json"), 1, 2, cmd_stack},
    {"data", "tokenize TEXT... -o FILE | text FILE [options]",
     "text as a file of tokens for run --data, and back",
     "tokenize joins the texts and, with --vocabulary above 256, learns which pairs of\n"
     "bytes and of earlier tokens to replace, the most frequent first.\n",
     OPTIONS("vocabulary", "output", "json"), 1, INT_MAX, cmd_data},
    {"validate", "FILE|DIR [options]", "predictions against published measurements", NULL,
     OPTIONS("json"), 1, 1, cmd_validate},
    {"export", "PLAN --to TARGET [-o DIR] [options]",
     "the files that launch a plan: scripts, host lists, arguments",
     "Targets: mpirun, slurm and k8s-mpijob start trainyard-worker; torchrun,\n"
     "k8s-pytorchjob, horovod, deepspeed, accelerate, torchtitan and megatron a\n"
     "training script of yours; nccl-tuner writes what NCCL is to choose.\n"
     "--on puts what is started on every host into Slurm, Kubernetes or SkyPilot.\n"
     "chakra writes execution traces. -o is a folder; without it the files are shown.\n"
     "What a target cannot express is refused with the reason. With --checkpoint the\n"
     "files start what failed again, and it resumes from the newest checkpoint.\n",
     OPTIONS("to", "output", "nodes", "steps", "until", "backend", "precision", "data",
             "checkpoint", "checkpoint-every", "keep", "deterministic", "init", "save-weights",
             "script", "image", "on", "rdma", "force"),
     1, 1, cmd_export},
    {"check", "FILE... [options]", "whether files can be read, and what in them is not used",
     "Reads whatever Trainyard reads: its own files, and those of other programs that\n"
     "workload import, cluster import and profile import take.\n",
     OPTIONS("host", "device", "json"), 1, INT_MAX, cmd_check},
    {"config", "[options]", "the settings in force, and where they come from",
     "Files: /etc/trainyard.conf, ~/.config/trainyard/config, ./trainyard.conf; later\n"
     "ones win, and options win over all. $TRAINYARD_CONFIG names one file instead.\n"
     "./trainyard.conf, of a folder that may be anybody's, names no script, image or\n"
     "path outside that folder, through a link neither, without --trust-config.\n"
     "A line is KEY = VALUE; the key is an option, or COMMAND.OPTION for one command:\n"
     "    cluster = 16x dgx-a100\n"
     "    plan.top = 10\n",
     OPTIONS("show-origin", "json"), 0, 0, cmd_config},
    {"demo", "[options]", "measure this machine, plan, simulate, train, compare, write report.html",
     NULL, OPTIONS("steps", "data", "directory"), 0, 0, cmd_demo},
    {NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

exit_code command_run(int count, char **words)
{
    const char *name = count > 0 ? words[0] : NULL, *close;
    const bool is_help = name != NULL && strcmp(name, "help") == 0 && count > 1;

    if (is_help && strcmp(words[1], "help") != 0) /* command of "help plan" */
        name = words[1];
    else if (name == NULL) {
        options_help_all(commands, stderr);
        return EXIT_USAGE;
    } else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
               strcmp(name, "help") == 0) {
        options_help_all(commands, stdout);
        return EXIT_DONE;
    } else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        puts("trainyard " TY_VERSION);
        return EXIT_DONE;
    } else if (strcmp(name, "--generate") == 0)
        return manual_generate(commands, count - 1, words + 1);
    for (const cli_command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) {
            cli_options options = {.commands = commands, .seed = TY_USUAL_SEED, .help = is_help};
            exit_code code = is_help ? EXIT_DONE : options_parse(c, count - 1, words + 1, &options);
            if (code == EXIT_DONE && options.help)
                options_help(c, stdout);
            else if (code == EXIT_DONE)
                code = c->run(&options);
            options_clear(&options);
            return code;
        }
    }
    close = strcmp(name, "version") == 0 || strcmp(name, "-v") == 0
                ? "--version"
                : ty_suggest(name, commands, sizeof commands / sizeof commands[0] - 1,
                             sizeof commands[0]);
    if (close != NULL)
        return report_usage(NULL, "unknown command '%s'; did you mean '%s'?", name, close);
    return report_usage(NULL, "unknown command '%s'", name);
}
