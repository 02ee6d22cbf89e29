/* Importing kubectl get nodes -o json. */
#define FORMAT "kubernetes"
#include "cluster_import_fuzz.h"
