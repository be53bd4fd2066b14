variable "project" {
  description = "id of the Google Cloud project"
  type        = string
}

variable "region" {
  description = "of the registry and the bucket"
  type        = string
  default     = "us-central1"
}

variable "zones" {
  description = "in which the GPU machine may be, as machine.zones of the deployment"
  type        = list(string)
  default     = ["us-central1-a", "us-central1-b", "us-east4-c"]
}

variable "bucket" {
  description = "name of the store's bucket"
  type        = string
}

variable "startup_script" {
  description = "file that deploy/gce/startup_script.py printed"
  type        = string
  default     = "startup-script.sh"
}

variable "image" {
  description = "one of Google's images with NVIDIA's driver, Docker and NVIDIA's container toolkit, such as projects/PROJECT/global/images/NAME"
  type        = string
}

variable "machine_type" {
  description = "a type that has its card, such as those of g2 and a2"
  type        = string
  default     = "g2-standard-4"
}

variable "engine_port" {
  description = "machine.engine_port of the deployment"
  type        = number
  default     = 8000
}

variable "weights_gib" {
  description = "size of the disk with weights in each zone"
  type        = number
  default     = 50
}

variable "boot_gib" {
  description = "size of the boot disk: system, image, and the base model of trainings three times"
  type        = number
  default     = 150
}

variable "soft_delete_days" {
  description = "for how long the bucket can give back what was deleted"
  type        = number
  default     = 7
}
