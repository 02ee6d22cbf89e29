/* Importing Slurm topology.yaml. */
#define FORMAT "slurm-yaml"
#include "cluster_import_fuzz.h"
