"""The cluster on Alibaba Cloud: one file a concern, under the names of `components/aws/`."""
