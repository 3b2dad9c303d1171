#define MR_VERSION "0.1.0"
