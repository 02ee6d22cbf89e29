/* One or two valid command lines per command, for help and manual. */
#include "cli.h"

#include <string.h>

static const struct {
    const char *command, *line;
} examples[] = {
    {"plan", "trainyard plan -w gpt2 -c '2x dgx-a100' -o gpt2.json"},
    {"plan", "trainyard plan -w lenet -c local:2 --fix pp=2,schedule=1f1b -o lenet.json"},
    {"estimate", "trainyard estimate gpt2.json --program"},
    {"simulate", "trainyard simulate gpt2.json --straggler 3=1.5 --trace gpt2-trace.json"},
    {"memory", "trainyard memory -w gpt2 -c '2x dgx-a100' --fix pp=4"},
    {"score", "trainyard score gpt2.json"},
    {"systems", "trainyard systems -w vgg16 -c '4x p100-server'"},
    {"run", "trainyard run lenet.json --steps 60 -o lenet-run.json"},
    {"run", "trainyard run lenet.json --backend replay"},
    {"compare", "trainyard compare lenet.json lenet-run.json"},
    {"report", "trainyard report lenet.json lenet-run.json -o lenet.html"},
    {"whatif", "trainyard whatif -w gpt2 -c '2x dgx-a100' --vary hosts=1,2,4 --vary tp=1,2"},
    {"profile", "trainyard profile -w lenet -o this-machine.json"},
    {"calibrate", "trainyard calibrate all_reduce_perf.log -c dgx-a100 -o network.json"},
    {"calibrate", "trainyard calibrate -w lenet -c local:2 --until accuracy=0.8 -o task.json"},
    {"calibrate", "trainyard calibrate --reached 2048:38epochs,8192:42epochs --global-batch 4096"},
    {"calibrate", "trainyard calibrate --stack megatron --mfu 0.41 -w gpt2 -c dgx-a100"},
    {"calibrate", "trainyard calibrate --stack megatron rows.csv -o mine.json"},
    {"partition", "trainyard partition graph.txt --machines 4x2 --bandwidths 30GB/s,25Gb/s"},
    {"workload", "trainyard workload list"},
    {"workload", "trainyard workload import config.json -o model.json"},
    {"cluster", "trainyard cluster show dgx-h100"},
    {"cluster", "trainyard cluster check 'leaf:4 host:4 gpu:8 @h100 nvlink4 ndr400 oversub:2'"},
    {"cluster", "trainyard cluster collective '2x dgx-h100' --size 64MiB,1GiB"},
    {"stack", "trainyard stack show megatron"},
    {"data", "trainyard data tokenize book.txt --vocabulary 4096 -o book.tokens"},
    {"validate", "trainyard validate published.json"},
    {"export", "trainyard export gpt2.json --to slurm -o launch"},
    {"check", "trainyard check gpt2.json topology.xml"},
    {"config", "trainyard config --show-origin"},
    {"demo", "trainyard demo"},
};

const char *example_of(const char *command, size_t number)
{
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++)
        if (strcmp(examples[i].command, command) == 0 && number-- == 0)
            return examples[i].line;
    return NULL;
}
