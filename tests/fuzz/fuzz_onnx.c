/* ONNX models. */
#include "import_fuzz.h"
