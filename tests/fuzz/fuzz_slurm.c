/* Importing Slurm topology.conf. */
#define FORMAT "slurm"
#include "cluster_import_fuzz.h"
