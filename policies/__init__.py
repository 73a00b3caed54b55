"""Controls for AWS and Alibaba Cloud: one requirement each, judged on any Pulumi program that uses their providers."""
